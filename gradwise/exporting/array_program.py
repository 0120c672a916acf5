"""A program of array operations in a straight line, which ONNX and NumPy both can express.

    program = ArrayProgram((n, 8), np.dtype(np.float64))
    scaled = program.elementwise("divide", program.input, program.constant(scale))
    program.steps                                      each: operation, operands, settings, result

Operations on constants alone are carried out at once. Lengths may be symbolic: the number of rows is. Operands of an
element-wise operation broadcast as in NumPy.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.export import is_symbolic_dim

from .numpy_expressions import carry_out


@dataclass(frozen=True, eq=False)
class Value:
    """An array of the program: what a step makes, the input, or a constant."""

    shape: tuple[Any, ...]
    dtype: np.dtype
    constant: np.ndarray | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)


@dataclass(frozen=True, eq=False)
class Step:
    """One operation; `scope` is the part of the predictor that it belongs to."""

    operation: str
    operands: tuple[Value, ...]
    settings: dict[str, Any]
    result: Value
    scope: str


def plain_shape(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Lengths as plain integers where they are known."""
    return tuple(length if is_symbolic_dim(length) else int(length) for length in shape)


def _identity(value: Value) -> Any:
    """What makes two operands the same: constants by their content, others by what made them."""
    if value.constant is None:
        return value
    content = np.ascontiguousarray(value.constant)
    return str(value.dtype), value.shape, hashlib.blake2b(content.tobytes(), digest_size=16).digest()


def _broadcast(values: Sequence[Value]) -> tuple[Any, ...]:
    rank = max(value.ndim for value in values)
    shape: list[Any] = []
    for place in range(-rank, 0):
        lengths = [value.shape[place] for value in values if value.ndim >= -place]
        shape.append(next((length for length in lengths if not (not is_symbolic_dim(length) and length == 1)), 1))
    return tuple(shape)


@dataclass
class ArrayProgram:
    """The steps, in order, from one input to one output."""

    shape: tuple[Any, ...]
    dtype: np.dtype
    steps: list[Step] = field(default_factory=list)
    scope: str = ""

    def __post_init__(self) -> None:
        self.input = Value(plain_shape(self.shape), self.dtype)
        self._made: dict[Value, Step] = {}
        self._known: dict[Any, Value] = {}

    @staticmethod
    def constant(array: Any) -> Value:
        array = np.asarray(array)
        return Value(array.shape, array.dtype, array)

    def step(
        self, operation: str, operands: Sequence[Value], shape: Sequence[Any], dtype: Any = None, /, **settings: Any
    ) -> Value:
        """The result of one more step, or a constant."""
        dtype = np.dtype(operands[0].dtype if dtype is None else dtype)
        fixed = [operand.constant for operand in operands]
        symbolic = any(is_symbolic_dim(length) for length in shape)
        if not symbolic and all(one is not None for one in fixed):
            return self.constant(
                carry_out(operation, [one for one in fixed if one is not None], settings).astype(dtype)
            )
        key = (operation, dtype, str(settings), tuple(map(_identity, operands)))
        if key in self._known:
            return self._known[key]
        result = self._known[key] = Value(plain_shape(shape), dtype)
        self.steps.append(Step(operation, tuple(operands), settings, result, self.scope))
        self._made[result] = self.steps[-1]
        return result

    def elementwise(self, operation: str, *operands: Value, dtype: Any = None) -> Value:
        """An operation on operands that broadcast; its type is that of the last operand unless given."""
        dtype = operands[-1].dtype if dtype is None else dtype
        turned = [one for one in operands if one in self._made and self._made[one].operation == "transpose"]
        if len(turned) == 1 and all(one is turned[0] or np.prod(one.shape) == 1 for one in operands):
            # A scale before or behind a transposition is the same: behind it, transpositions come together and cancel.
            (before,), axes = self._made[turned[0]].operands, self._made[turned[0]].settings["axes"]
            inside = [before if one is turned[0] else self.reshape(one, ()) for one in operands]
            return self.transpose(self.elementwise(operation, *inside, dtype=dtype), axes)
        shape = _broadcast(operands)
        if any(one.constant is None and one.ndim == len(shape) for one in operands):
            operands = tuple(map(self._thin, operands))
        return self.step(operation, operands, shape, dtype)

    def _thin(self, value: Value) -> Value:
        """A constant without leading axes of length 1, which broadcasting adds again."""
        if value.constant is None:
            return value
        kept = list(value.shape)
        while kept and kept[0] == 1:
            del kept[0]
        return self.reshape(value, kept)

    def cast(self, value: Value, dtype: Any) -> Value:
        dtype = np.dtype(dtype)
        return value if value.dtype == dtype else self.step("cast", [value], value.shape, dtype, dtype=dtype)

    def reshape(self, value: Value, shape: Sequence[Any]) -> Value:
        shape = plain_shape(shape)
        if value in self._made and self._made[value].operation == "reshape":
            (value,) = self._made[value].operands
        return value if value.shape == shape else self.step("reshape", [value], shape, shape=shape)

    def expand(self, value: Value, shape: Sequence[Any]) -> Value:
        """The value with axes of length 1 repeated."""
        shape = plain_shape(shape)
        return value if value.shape == shape else self.step("expand", [value], shape, shape=shape)

    def transpose(self, value: Value, axes: Sequence[int]) -> Value:
        axes = tuple(int(axis) for axis in axes)
        if value in self._made and self._made[value].operation == "transpose":
            earlier = self._made[value]
            value, axes = earlier.operands[0], tuple(earlier.settings["axes"][axis] for axis in axes)
        if axes == tuple(range(value.ndim)):
            return value
        return self.step("transpose", [value], [value.shape[axis] for axis in axes], axes=axes)

    def concatenate(self, values: Sequence[Value], axis: int) -> Value:
        some = [value for value in values if value.shape[axis] != 0] or list(values[:1])
        if len(some) == 1:
            return some[0]
        shape = list(some[0].shape)
        shape[axis] = sum(value.shape[axis] for value in some)
        return self.step("concatenate", some, shape, axis=int(axis))

    def slice(self, value: Value, cuts: Sequence[slice]) -> Value:
        """A part of each axis; `slice(None)` keeps it whole. Steps may be negative."""
        shape = [
            length if cut == slice(None) else len(range(*cut.indices(int(length))))
            for length, cut in zip(value.shape, cuts, strict=True)
        ]
        if all(cut == slice(None) for cut in cuts):
            return value
        return self.step("slice", [value], shape, slices=tuple(cuts))

    def pad(self, value: Value, widths: Sequence[tuple[int, int]], filling: Any) -> Value:
        if all(width == (0, 0) for width in widths):
            return value
        shape = [length + low + high for length, (low, high) in zip(value.shape, widths, strict=True)]
        return self.step("pad", [value], shape, widths=tuple(widths), value=filling)

    def take(self, value: Value, indices: Value, axis: int) -> Value:
        """The entries of an axis at these indices, which must lie within."""
        shape = [*value.shape[:axis], *indices.shape, *value.shape[axis + 1 :]]
        return self.step("take", [value, indices], shape, axis=axis)

    def reduce(self, operation: str, value: Value, axes: Sequence[int]) -> Value:
        axes = tuple(int(axis) for axis in axes)
        kept = [length for axis, length in enumerate(value.shape) if axis not in axes]
        return self.step(operation, [value], kept, axes=axes) if axes else value

    def matmul(self, left: Value, right: Value) -> Value:
        shape = [*_broadcast([Value(v.shape[:-2], v.dtype) for v in (left, right)]), left.shape[-2], right.shape[-1]]
        return self.step("matmul", [left, right], shape)

    def useful_steps(self, output: Value) -> list[Step]:
        """The steps that the output depends on."""
        needed, kept = {output}, []
        for step in reversed(self.steps):
            if step.result in needed:
                kept.append(step)
                needed.update(step.operands)
        return kept[::-1]


def as_numpy(value: Any) -> np.ndarray:
    """A constant of a traced program as NumPy has it."""
    return np.asarray(jax.device_get(value))
