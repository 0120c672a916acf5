"""A program of array operations as nodes of an ONNX graph.

    graph = OnnxGraph()
    names = graph.add_program(program, output, "rows")            the name of the output
    graph.node("Add", "a", "b")                                   a node by hand

Where ONNX Runtime computes a function in 32 bits alone, the node stands between two casts.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.export import is_symbolic_dim

from ..runtime.errors import RequestError
from .array_program import ArrayProgram, Step, Value

PLAIN = {
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "divide_integers": "Div",
    "power": "Pow",
    "maximum": "Max",
    "minimum": "Min",
    "negate": "Neg",
    "abs": "Abs",
    "sign": "Sign",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "sin": "Sin",
    "cos": "Cos",
    "tanh": "Tanh",
    "tan": "Tan",
    "arctan": "Atan",
    "arcsin": "Asin",
    "arccos": "Acos",
    "sinh": "Sinh",
    "cosh": "Cosh",
    "arcsinh": "Asinh",
    "arccosh": "Acosh",
    "arctanh": "Atanh",
    "erf": "Erf",
    "floor": "Floor",
    "ceil": "Ceil",
    "round": "Round",
    "isnan": "IsNaN",
    "not": "Not",
    "equal": "Equal",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "where": "Where",
    "matmul": "MatMul",
    "xor": "Xor",
    "and": "And",
    "or": "Or",
}
# ONNX Runtime has these for 32 bits alone.
NARROW = {
    *("tan", "arctan", "arcsin", "arccos", "sinh", "cosh", "arcsinh", "arccosh", "arctanh", "erf"),
    "convolve",
}
REDUCED = {"sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}
Writer = Callable[["OnnxGraph", Step, list[str]], str]


class OnnxGraph:
    """Nodes and constants, each with a name of its own."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._known: dict[tuple[Any, ...], str] = {}
        self._count = 0
        self._rows = ""

    def fresh(self) -> str:
        """A name that no column can have."""
        self._count += 1
        return f"gradwise/{self._count}"

    def node(self, kind: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        """Adds a node; the name of its output, or their names."""
        from onnx import helper

        names = [self.fresh() for _ in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, array: Any) -> str:
        """The name of a constant; equal ones are stored once."""
        from onnx import numpy_helper

        array = np.asarray(array)
        key = (array.dtype.str, array.shape, tuple(array.ravel()) if array.dtype == object else array.tobytes())
        if key not in self._known:
            self._known[key] = self.fresh()
            self.constants.append(numpy_helper.from_array(array.copy(order="C"), self._known[key]))
        return self._known[key]

    def cast(self, name: str, dtype: Any) -> str:
        from onnx import helper

        return self.node("Cast", name, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def count_rows(self, name: str) -> None:
        """Takes the number of rows from the first axis of this input."""
        self._rows = self.node("Shape", name, start=0, end=1)

    def _length(self, length: Any, rows: Any) -> str:
        if not is_symbolic_dim(length):
            return self.constant(np.array([length], np.int64))
        times = length // rows
        if is_symbolic_dim(times) or times * rows != length:
            raise RequestError(f"the network has an axis of {length} entries, which cannot be exported to ONNX.")
        return self._rows if times == 1 else self.node("Mul", self._rows, self.constant(np.array([times], np.int64)))

    def shape(self, shape: Sequence[Any], rows: Any) -> str:
        """A shape as an input of a node; `rows` is the symbol for the number of rows."""
        if not any(map(is_symbolic_dim, shape)):
            return self.constant(np.array(shape, np.int64))
        return self.node("Concat", *(self._length(length, rows) for length in shape), axis=0)

    def add_program(self, program: ArrayProgram, output: Value, rows: str) -> str:
        """Adds the steps of a program of the input `rows`; returns the output's name."""
        names = {program.input: rows}
        symbol = program.input.shape[0]

        def name_of(value: Value) -> str:
            return names[value] if value.constant is None else self.constant(value.constant)

        for step in program.useful_steps(output):
            inputs = [name_of(operand) for operand in step.operands]
            if step.operation == "expand":
                names[step.result] = self.node("Expand", inputs[0], self.shape(step.settings["shape"], symbol))
                continue
            is_narrow = step.operation in NARROW and step.result.dtype == np.float64
            inputs = [self.cast(one, np.float32) for one in inputs] if is_narrow else inputs
            found = WRITERS[step.operation](self, step, inputs)
            names[step.result] = self.cast(found, np.float64) if is_narrow else found
        return name_of(output)


def _plain(kind: str) -> Writer:
    def write(graph: OnnxGraph, step: Step, inputs: list[str]) -> str:
        bits = step.operands[0].dtype.kind in "iu" and kind in ("And", "Or", "Xor", "Not")
        found: str = graph.node(f"Bitwise{kind}" if bits else kind, *inputs)
        return found

    return write


def _integers(graph: OnnxGraph, numbers: Sequence[int]) -> str:
    return graph.constant(np.array(numbers, np.int64))


def _not_equal(graph: OnnxGraph, step: Step, inputs: list[str]) -> str:
    return graph.node("Not", graph.node("Equal", *inputs))


def _is_finite(graph: OnnxGraph, step: Step, inputs: list[str]) -> str:
    largest = graph.constant(np.asarray(np.finfo(step.operands[0].dtype).max, step.operands[0].dtype))
    return graph.node("LessOrEqual", graph.node("Abs", *inputs), largest)  # NaN is not


def _beside_one(kind: str, first: str) -> Writer:
    """log(1 + x) and exp(x) - 1."""

    def write(graph: OnnxGraph, step: Step, inputs: list[str]) -> str:
        one = graph.constant(np.ones((), step.result.dtype))
        if first == "Add":
            return graph.node(kind, graph.node("Add", *inputs, one))
        return graph.node("Sub", graph.node(kind, *inputs), one)

    return write


def _remainder(graph: OnnxGraph, step: Step, inputs: list[str]) -> str:
    return graph.node("Mod", *inputs, fmod=1)


def _reshape(graph: OnnxGraph, step: Step, inputs: list[str]) -> str:
    shape = [-1 if is_symbolic_dim(length) else length for length in step.result.shape]
    if shape.count(-1) > 1:
        raise RequestError(f"the network makes an array of shape {step.result.shape}, which ONNX cannot reshape to.")
    return graph.node("Reshape", inputs[0], _integers(graph, shape))


def _transpose(graph: OnnxGraph, step: Step, inputs: list[str]) -> str:
    return graph.node("Transpose", inputs[0], perm=list(step.settings["axes"]))


def _slice(graph: OnnxGraph, step: Step, inputs: list[str]) -> str:
    far, places = np.iinfo(np.int64).max, []
    for axis, cut in enumerate(step.settings["slices"]):
        if cut != slice(None):
            stride = cut.step or 1
            start = (0 if stride > 0 else -1) if cut.start is None else cut.start
            places.append((start, (far if stride > 0 else -far) if cut.stop is None else cut.stop, axis, stride))
    return graph.node("Slice", inputs[0], *(_integers(graph, one) for one in zip(*places, strict=True)))


def _pad(graph: OnnxGraph, step: Step, inputs: list[str]) -> str:
    widths = step.settings["widths"]
    both = [low for low, _ in widths] + [high for _, high in widths]
    value = graph.constant(np.asarray(step.settings["value"], step.result.dtype))
    return graph.node("Pad", inputs[0], _integers(graph, both), value)


def _reduced(kind: str) -> Writer:
    def write(graph: OnnxGraph, step: Step, inputs: list[str]) -> str:
        is_bool = step.operands[0].dtype == bool  # no runtime reduces these
        name = graph.cast(inputs[0], np.int32) if is_bool else inputs[0]
        name = graph.node(kind, name, _integers(graph, step.settings["axes"]), keepdims=0)
        return graph.cast(name, bool) if is_bool else name

    return write


def _extreme(kind: str) -> Writer:
    def write(graph: OnnxGraph, step: Step, inputs: list[str]) -> str:
        name = graph.node(kind, inputs[0], axis=step.settings["axis"], keepdims=0)
        return name if step.result.dtype == np.int64 else graph.cast(name, step.result.dtype)

    return write


def _convolve(graph: OnnxGraph, step: Step, inputs: list[str]) -> str:
    told = step.settings
    pads = [low for low, _ in told["padding"]] + [high for _, high in told["padding"]]
    return graph.node(
        "Conv",
        *inputs,
        strides=list(told["strides"]),
        dilations=list(told["dilation"]),
        pads=pads,
        group=told["groups"],
    )


WRITERS: dict[str, Writer] = {
    **{name: _plain(kind) for name, kind in PLAIN.items()},
    **{name: _reduced(kind) for name, kind in REDUCED.items()},
    "not_equal": _not_equal,
    "isfinite": _is_finite,
    "log1p": _beside_one("Log", "Add"),
    "expm1": _beside_one("Exp", "Sub"),
    "fmod": _remainder,
    "cast": lambda graph, step, inputs: graph.cast(inputs[0], step.result.dtype),
    "reshape": _reshape,
    "transpose": _transpose,
    "concatenate": lambda graph, step, inputs: graph.node("Concat", *inputs, axis=step.settings["axis"]),
    "slice": _slice,
    "pad": _pad,
    "take": lambda graph, step, inputs: graph.node("Gather", *inputs, axis=step.settings["axis"]),
    "argmax": _extreme("ArgMax"),
    "argmin": _extreme("ArgMin"),
    "cumsum": lambda graph, step, inputs: graph.node(
        "CumSum", inputs[0], graph.constant(np.array(step.settings["axis"], np.int64))
    ),
    "convolve": _convolve,
}
