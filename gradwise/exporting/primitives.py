"""JAX's primitives as array operations: one rule each.

    RULES["dot_general"](program, equation, operands)      the value of the equation, added to the program

A value may be thinner than its equation says: an axis of length 1 stands for one of any length that is the same all
along. So most broadcasting never happens; rules that need the axes as they are ask for `full` operands.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax
from jax.export import is_symbolic_dim

from .array_program import ArrayProgram, Value
from .gathers_and_windows import convolution, full, pooling, refuse, translate_gather

Rule = Callable[[ArrayProgram, Any, list[Value]], Any]

ELEMENTWISE = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "max": "maximum",
    "min": "minimum",
    "pow": "power",
    "neg": "negate",
    "abs": "abs",
    "sign": "sign",
    "exp": "exp",
    "expm1": "expm1",
    "log": "log",
    "log1p": "log1p",
    "sqrt": "sqrt",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "tanh": "tanh",
    "sinh": "sinh",
    "cosh": "cosh",
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "floor": "floor",
    "ceil": "ceil",
    "erf": "erf",
    "rem": "fmod",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "not": "not",
    "is_finite": "isfinite",
    "add_any": "add",
}
SAME = ("copy", "stop_gradient", "optimization_barrier")
REDUCTIONS = {
    "reduce_sum": "sum",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_prod": "prod",
    "reduce_or": "max",
    "reduce_and": "min",
}


def _result(equation: Any) -> Any:
    return equation.outvars[0].aval


def _number(program: ArrayProgram, value: float, like: Value) -> Value:
    return program.constant(np.asarray(value, like.dtype))


def _elementwise(operation: str) -> Rule:
    def rule(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
        if operation == "not_equal" and operands[0] is operands[1]:
            return program.elementwise("isnan", operands[0], dtype=bool)
        return program.elementwise(operation, *operands, dtype=_result(equation).dtype)

    return rule


def _divide(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    return program.elementwise("divide" if operands[0].dtype.kind == "f" else "divide_integers", *operands)


def _round(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    (x,) = operands
    if equation.params["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN:
        return program.elementwise("round", x)
    above = program.elementwise("floor", program.elementwise("add", _half(program, x), program.elementwise("abs", x)))
    return program.elementwise("multiply", program.elementwise("sign", x), above)


def _half(program: ArrayProgram, like: Value) -> Value:
    return _number(program, 0.5, like)


def _integer_power(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    (x,), exponent = operands, equation.params["y"]
    if abs(exponent) > 8:
        return program.elementwise("power", x, _number(program, exponent, x))
    found = _number(program, 1, x)
    for turn in range(abs(exponent)):
        found = x if turn == 0 else program.elementwise("multiply", found, x)
    return found if exponent >= 0 else program.elementwise("divide", _number(program, 1, x), found)


def _logistic(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    (x,) = operands
    one = _number(program, 1, x)
    powers = program.elementwise("exp", program.elementwise("negate", x))
    return program.elementwise("divide", one, program.elementwise("add", one, powers))


def _erfc(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    return program.elementwise("subtract", _number(program, 1, operands[0]), program.elementwise("erf", operands[0]))


def _inverse_root(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    return program.elementwise("divide", _number(program, 1, operands[0]), program.elementwise("sqrt", operands[0]))


def _clamp(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    low, x, high = operands
    return program.elementwise("minimum", program.elementwise("maximum", x, low), high)


def _select(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    which, *cases = operands
    if which.dtype == bool:
        return program.elementwise("where", which, cases[1], cases[0]) if len(cases) == 2 else cases[0]
    found = cases[-1]
    for number in range(len(cases) - 2, -1, -1):
        here = program.elementwise("equal", which, _number(program, number, which), dtype=bool)
        found = program.elementwise("where", here, cases[number], found)
    return found


def _cast(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    return program.cast(operands[0], equation.params["new_dtype"])


def _same(program: ArrayProgram, equation: Any, operands: list[Value]) -> list[Value]:
    return operands


def _broadcast_in_dim(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    shape = [1] * len(_result(equation).shape)
    for length, axis in zip(operands[0].shape, equation.params["broadcast_dimensions"], strict=True):
        shape[axis] = length
    return program.reshape(operands[0], shape)


def _reshape(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    return program.reshape(full(program, equation, operands), _result(equation).shape)


def _transpose(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    return program.transpose(operands[0], equation.params["permutation"])


def _concatenate(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    pieces = [full(program, equation, operands, place) for place in range(len(operands))]
    return program.concatenate(pieces, equation.params["dimension"])


def _tile(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    found = full(program, equation, operands)
    for axis, times in enumerate(equation.params["reps"]):
        found = found if times == 1 else program.concatenate([found] * int(times), axis)
    return found


def _stack(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    axis = int(equation.params.get("axis", equation.params.get("dimension", 0)))
    pieces = []
    for place in range(len(operands)):
        x = full(program, equation, operands, place)
        pieces.append(program.reshape(x, [*x.shape[:axis], 1, *x.shape[axis:]]))
    return program.concatenate(pieces, axis)


def _cut(start: Any, stop: Any, stride: int, length: Any) -> slice:
    if (not is_symbolic_dim(start) and start == 0) and stride == 1 and stop == length:
        return slice(None)
    return slice(int(start), int(stop), None if stride == 1 else int(stride))


def _slice(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    x, given = full(program, equation, operands), equation.params
    strides = given["strides"] or (1,) * x.ndim
    ends = zip(given["start_indices"], given["limit_indices"], strides, x.shape, strict=True)
    return program.slice(x, [_cut(*one) for one in ends])


def _split(program: ArrayProgram, equation: Any, operands: list[Value]) -> list[Value]:
    x, axis, start, found = full(program, equation, operands), equation.params["axis"], 0, []
    for size in equation.params["sizes"]:
        cuts = [slice(None)] * x.ndim
        cuts[axis] = slice(start, start + size)
        found.append(program.slice(x, cuts))
        start += size
    return found


def _reverse(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    axes = equation.params["dimensions"]
    return program.slice(
        full(program, equation, operands),
        [slice(None, None, -1) if axis in axes else slice(None) for axis in range(operands[0].ndim)],
    )


def _pad(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    x, filling, widths = full(program, equation, operands), operands[1], equation.params["padding_config"]
    if filling.constant is None or any(low < 0 or high < 0 or inside for low, high, inside in widths):
        raise refuse(equation, "between entries, with negative widths or with a computed number")
    return program.pad(x, [(int(low), int(high)) for low, high, _ in widths], filling.constant.item())


def _reduce(operation: str) -> Rule:
    def rule(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
        return program.reduce(operation, full(program, equation, operands), equation.params["axes"])

    return rule


def _place_of_extreme(operation: str) -> Rule:
    def rule(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
        result, (axis,) = _result(equation), equation.params["axes"]
        x, dtype = full(program, equation, operands), np.dtype(equation.params["index_dtype"])
        return program.step(operation, [x], result.shape, dtype, axis=int(axis), dtype=dtype)

    return rule


def _cumulative_sum(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    x, axis = full(program, equation, operands), int(equation.params["axis"])
    backwards = [slice(None, None, -1) if one == axis else slice(None) for one in range(x.ndim)]
    if not equation.params["reverse"]:
        return program.step("cumsum", [x], x.shape, axis=axis)
    return program.slice(program.step("cumsum", [program.slice(x, backwards)], x.shape, axis=axis), backwards)


def _count(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    """An iota."""
    given = equation.params
    length = given["shape"][given["dimension"]]
    if is_symbolic_dim(length):
        raise refuse(equation, "over the rows")
    shape = [1] * len(given["shape"])
    shape[given["dimension"]] = int(length)
    return program.constant(np.arange(length).astype(given["dtype"]).reshape(shape))


def _product(lengths: Sequence[Any]) -> Any:
    return math.prod(lengths[1:], start=lengths[0]) if lengths else 1


def _dot(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    """A product of matrices, by transpositions and reshapes around `matmul`."""
    left, right = (full(program, equation, operands, place) for place in (0, 1))
    (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
    left_free = [axis for axis in range(left.ndim) if axis not in {*left_sum, *left_batch}]
    right_free = [axis for axis in range(right.ndim) if axis not in {*right_sum, *right_batch}]
    if left.constant is not None and left.ndim == 2 and right.ndim >= 2 and len(left_sum) == 1 and not left_batch:
        found = program.matmul(
            program.transpose(right, [*right_free, *right_sum]), program.transpose(left, [*left_sum, *left_free])
        )  # weights @ inputs, where the inputs are rows: inputs @ weights transposed
        found = program.transpose(found, [found.ndim - 1, *range(found.ndim - 1)])
    elif right.ndim == 2 and len(right_sum) == 1 and left.ndim >= 2 and not left_batch:
        found = program.matmul(
            program.transpose(left, [*left_free, *left_sum]), program.transpose(right, [*right_sum, *right_free])
        )
    else:
        sizes = [[v.shape[axis] for axis in axes] for v, axes in ((left, left_batch), (left, left_free))]
        batch, rows = sizes
        summed, columns = [left.shape[axis] for axis in left_sum], [right.shape[axis] for axis in right_free]
        first = program.transpose(left, [*left_batch, *left_free, *left_sum])
        second = program.transpose(right, [*right_batch, *right_sum, *right_free])
        first = program.reshape(first, [*batch, _product(rows), _product(summed)])
        second = program.reshape(second, [*batch, _product(summed), _product(columns)])
        found = program.reshape(program.matmul(first, second), [*batch, *rows, *columns])
    return program.cast(found, _result(equation).dtype)


RULES: dict[str, Rule] = {
    **{name: _elementwise(operation) for name, operation in ELEMENTWISE.items()},
    **dict.fromkeys(SAME, _same),
    **{name: _reduce(operation) for name, operation in REDUCTIONS.items()},
    "div": _divide,
    "round": _round,
    "integer_pow": _integer_power,
    "square": lambda program, equation, operands: program.elementwise("multiply", operands[0], operands[0]),
    "logistic": _logistic,
    "erfc": _erfc,
    "rsqrt": _inverse_root,
    "clamp": _clamp,
    "select_n": _select,
    "convert_element_type": _cast,
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": _reshape,
    "squeeze": _reshape,
    "transpose": _transpose,
    "concatenate": _concatenate,
    "stack": _stack,
    "tile": _tile,
    "slice": _slice,
    "split": _split,
    "rev": _reverse,
    "pad": _pad,
    "argmax": _place_of_extreme("argmax"),
    "argmin": _place_of_extreme("argmin"),
    "cumsum": _cumulative_sum,
    "iota": _count,
    "gather": translate_gather,
    "conv_general_dilated": convolution,
    "reduce_window_max": pooling("maximum", -math.inf),
    "reduce_window_min": pooling("minimum", math.inf),
    "reduce_window_sum": pooling("add", 0.0),
    "dot_general": _dot,
}
