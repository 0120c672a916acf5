"""Every operation of an exported program as an expression of NumPy: one table, to write files and to fold constants.

    expression("add", ("h1", "2.0"), {})                   "h1 + 2.0"
    carry_out("add", (array, array), {})                    its value

`{0}` is the first operand; names in braces are settings of the step.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import plain_functions

BINARY = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "and": "&",
    "or": "|",
    "xor": "^",
    "matmul": "@",
}
# Functions of NumPy that have the operation's own name.
PLAIN = (
    *("abs", "sign", "exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tan", "tanh", "sinh", "cosh"),
    *("arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh"),
    *("floor", "ceil", "isnan", "isfinite", "maximum", "minimum", "power", "fmod", "where"),
)
EXPRESSIONS = {
    **{name: f"{{0}} {sign} {{1}}" for name, sign in BINARY.items()},
    "negate": "-{0}",
    "not": "~{0}",
    "round": "np.rint({0})",
    "divide_integers": "({0} - np.fmod({0}, {1})) // {1}",  # towards 0, as processors divide
    "erf": "erf({0})",
    "cast": "{0}.astype({dtype})",
    "reshape": "{0}.reshape({shape})",
    "expand": "np.broadcast_to({0}, {shape})",
    "transpose": "{0}.transpose({axes})",
    "slice": "{0}[{slices}]",
    "pad": "np.pad({0}, {widths}, constant_values={value})",
    "take": "np.take({0}, {1}, axis={axis})",
    "sum": "{0}.sum({axes})",
    "max": "{0}.max({axes})",
    "min": "{0}.min({axes})",
    "prod": "{0}.prod({axes})",
    "argmax": "{0}.argmax({axis}).astype({dtype})",
    "argmin": "{0}.argmin({axis}).astype({dtype})",
    "cumsum": "{0}.cumsum({axis})",
    "convolve": "convolve({0}, {1}, strides={strides}, padding={padding}, dilation={dilation}, groups={groups})",
}
HELPERS = {"erf": plain_functions.erf, "convolve": plain_functions.convolve}


def expression(operation: str, operands: Sequence[str], settings: dict[str, str]) -> str:
    """The operation in NumPy, its operands and settings as source."""
    if operation == "concatenate":
        return f"np.concatenate([{', '.join(operands)}], axis={settings['axis']})"
    if operation in PLAIN:
        return f"np.{operation}({', '.join(operands)})"
    return EXPRESSIONS[operation].format(*operands, **settings)


def source_of_setting(value: Any) -> str:
    """A setting of a step as source."""
    if isinstance(value, np.dtype):
        return "bool" if value.kind == "b" else f"np.{value}"
    if isinstance(value, float | np.floating):
        return float_source(float(value))
    if isinstance(value, tuple) and any(isinstance(one, slice) for one in value):
        return ", ".join(_slice_source(one) for one in value)
    if isinstance(value, tuple):
        inside = ", ".join(map(source_of_setting, value))
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return str(value)


def float_source(value: float) -> str:
    """A float as source; NumPy names those that are not finite."""
    return repr(value) if np.isfinite(value) else {np.inf: "np.inf", -np.inf: "-np.inf"}.get(value, "np.nan")


def _slice_source(one: slice) -> str:
    start, stop = ("" if end is None else str(end) for end in (one.start, one.stop))
    return f"{start}:{stop}" + ("" if one.step is None else f":{one.step}")


def carry_out(operation: str, operands: Sequence[np.ndarray], settings: dict[str, Any]) -> np.ndarray:
    """The operation on constants."""
    names = [f"x{number}" for number in range(len(operands))]
    source = expression(operation, names, {name: source_of_setting(value) for name, value in settings.items()})
    with np.errstate(all="ignore"):
        return np.asarray(eval(source, {"np": np, **HELPERS, **dict(zip(names, operands, strict=True))}))
