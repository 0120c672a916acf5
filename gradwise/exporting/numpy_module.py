"""A predictor as one Python file that needs NumPy alone: its equations line by line, its weights as text.

    content = numpy_module(predictor)                      bytes of a `.py` file
    from model import predict, predict_proba               what it offers

The code that reads rows is the source of `plain_rows.py` and `words_and_dates.py`, so both read alike.
"""

import ast
import base64
import inspect
import io
import re
import textwrap
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
from jax.export import is_symbolic_dim

from .. import __version__
from ..data.reading import words_and_dates
from ..data.reading.delimited import MISSING
from ..specs.dataset import Classes
from ..training.predictor import AbstractPredictor
from . import plain_functions, plain_rows
from .array_program import ArrayProgram, Step, Value
from .numpy_expressions import HELPERS, expression, float_source, source_of_setting
from .translation import translate
from .whole_predictor import whole_predictor

_HEAD = '''"""{what}, exported by gradwise {version}. It needs Python 3.11 and NumPy.

    from {module} import {names}
    {example}
"""
'''
_ARRAYS = """
def read(rows):
    x = np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, np.float64)
    if x.shape[1:] != SHAPE and x[:1].size == np.prod(SHAPE):
        x = x.reshape(-1, *SHAPE)
    if x.shape[1:] != SHAPE:
        raise ValueError(f"each row must have shape {SHAPE}; got {x.shape[1:]}.")
    return x
"""
_TABLE = """
def read(rows):
    return encode_rows(rows, COLUMNS)
"""
_CHUNKS = '''
def outputs(rows):
    """{about}"""
    x = read(rows)
    with np.errstate(all="ignore"):
        return np.concatenate([forward(x[start : start + 4096]) for start in range(0, max(1, len(x)), 4096)])
'''
_PROBABILITIES = '''
def predict_proba(rows):
    """The probability of each {kind} (n, {width})."""
    return outputs(rows)
'''
_SINGULAR = {"classes": "class", "labels": "label"}
_PREDICT = {
    "classes": '''
def predict(rows):
    """The most probable class of each row."""
    return LABELS[outputs(rows).argmax(axis=1)]
''',
    "labels": '''
def predict(rows):
    """0 or 1 for each label (n, labels)."""
    return (outputs(rows) > 0.5).astype(int)
''',
    "numbers": '''
def predict(rows):
    """A number for each row, or one for each target (n, targets)."""
    found = outputs(rows)
    return found[:, 0] if found.shape[1] == 1 else found
''',
    "inputs": '''
def predict(rows):
    """The features of each row (n, features)."""
    return outputs(rows)
''',
}


class NumpyLines:
    """The lines of `forward`, and the arrays that they name `W[0]`, `W[1]`, ..."""

    def __init__(self, program: ArrayProgram, output: Value) -> None:
        self.weights: list[np.ndarray] = []
        self._places: dict[tuple[Any, ...], int] = {}
        self._names = {program.input: "x"}
        steps = program.useful_steps(output)
        self.used = [name for name in HELPERS if any(HELPERS[name].__name__ == step.operation for step in steps)]
        self.lines = ["n = len(x)"] if any(self._names_rows(step) for step in steps) else []
        scope = ""
        for step in steps:
            part = re.sub(r"/?vmap\([^()]*\)|[^\w ./-]", "", step.scope)
            if part != scope:
                self.lines.append(f"# {part}")
                scope = part
            self.lines.append(self._line(step))
        self.lines.append(f"return {self._name(output, ())}")

    @staticmethod
    def _names_rows(step: Step) -> bool:
        return any(is_symbolic_dim(length) for length in step.settings.get("shape", ()))

    def _line(self, step: Step) -> str:
        operands = [self._name(operand, step.operands) for operand in step.operands]
        settings = {name: source_of_setting(value) for name, value in step.settings.items()}
        self._names[step.result] = f"h{len(self._names)}"
        return f"{self._names[step.result]} = {expression(step.operation, operands, settings)}"

    def _name(self, value: Value, beside: Sequence[Value]) -> str:
        """A value as source; a number stands for itself where another operand gives it its type."""
        if value.constant is None:
            return self._names[value]
        array = value.constant
        if array.ndim == 0 and array.dtype.kind in "fiub":
            told = float_source(float(array)) if array.dtype.kind == "f" else str(array.item())
            typed = any(other.constant is None and other.dtype == array.dtype for other in beside)
            return told if typed else f"np.{array.dtype.name}({told})"
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._places:
            self._places[key] = len(self.weights)
            self.weights.append(array)
        return f"W[{self._places[key]}]"


def _embedded(modules: Sequence[ModuleType]) -> tuple[set[str], list[str]]:
    """The imports of modules, and the source of what they define."""
    imports: set[str] = set()
    pieces = []
    for module in modules:
        source = inspect.getsource(module)
        for node in ast.parse(source).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports |= {ast.unparse(node)} if getattr(node, "level", 0) == 0 else set()
            elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                pieces.append("\n".join(source.splitlines()[node.lineno - 1 : node.end_lineno]))
    return imports, pieces


def _packed(arrays: Sequence[np.ndarray]) -> str:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, *arrays)
    return "\n".join(textwrap.wrap(base64.b64encode(buffer.getvalue()).decode(), 118))


def _labels(predictor: AbstractPredictor) -> list[str]:
    if not isinstance(predictor.task, Classes):
        return [f"NAMES = {list(predictor.task.names)!r}"] if predictor.task.names else []
    labels = np.asarray(predictor.task.labels)
    kind = "" if labels.dtype.kind == "U" else f", dtype={labels.dtype.name!r}"
    return [f"LABELS = np.array({labels.tolist()!r}{kind})"]


def _head(predictor: AbstractPredictor) -> str:
    task, columns = predictor.task, predictor.columns
    target = re.sub(r"[^\w ,.-]", "", ", ".join(task.names))  # the name of a column must not end the docstring
    what = {"inputs": "Features of rows", "numbers": f"Numbers of {target}"}.get(task.kind, f"Predictions of {target}")
    example = "predict(rows)" + " " * 30 + f"# an array (n, {', '.join(map(str, predictor.shape))})"
    if columns:
        example = "predict(rows)" + " " * 30 + "# a data frame, a dictionary of columns, or a list of dictionaries"
    names = "predict, predict_proba" if task.kind in _SINGULAR else "predict"
    return _HEAD.format(what=what, version=__version__, module="model", names=names, example=example)


def numpy_module(predictor: AbstractPredictor) -> bytes:
    """The content of the file."""
    program, output = translate(whole_predictor(predictor).program)
    body, task = NumpyLines(program, output), predictor.task
    modules = [words_and_dates, plain_rows] if predictor.columns else []
    imports, pieces = _embedded([*modules, *([plain_functions] if body.used else [])])
    imports |= {"import base64", "import io", "import numpy as np"}
    if predictor.columns:
        columns = [(column.name, column.kind, list(column.categories)) for column in predictor.columns]
        facts = ["COLUMNS = [", *(f"    {column!r}," for column in columns), "]", f"MISSING = {sorted(MISSING)!r}"]
    else:
        facts = [f"SHAPE = {tuple(predictor.shape)!r}"]
    about = "Probabilities" if task.kind in _SINGULAR else "Predictions"
    parts = [
        _head(predictor),
        "\n".join(sorted(imports)) + "\n",
        "\n".join([*_labels(predictor), *facts]) + "\n",
        *(f"\n{piece}\n" if piece.startswith(("def ", "class ", "@")) else f"{piece}\n" for piece in pieces),
        _TABLE if predictor.columns else _ARRAYS,
        "\ndef forward(x):\n" + textwrap.indent("\n".join(body.lines), "    ") + "\n",
        _CHUNKS.format(about=f"{about} as the network gives them."),
        *([_PROBABILITIES.format(kind=_SINGULAR[task.kind], width=task.outputs)] if about == "Probabilities" else []),
        _PREDICT[task.kind],
        f'\nWEIGHTS = """\n{_packed(body.weights)}\n"""\n',
        "with np.load(io.BytesIO(base64.b64decode(WEIGHTS))) as stored:\n"
        '    W = [stored[f"arr_{number}"] for number in range(len(stored.files))]\n',
    ]
    return "\n".join(parts).encode()
