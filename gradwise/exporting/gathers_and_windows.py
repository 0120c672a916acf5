"""JAX's primitives that index, convolve and pool, as array operations.

Indexing is taken apart into slices, and one `take` along one axis; pooling becomes the maximum or sum of one slice for
each place in the window. A gather whose indices differ in every example along several axes is refused.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax.export import is_symbolic_dim

from ..runtime.errors import RequestError
from .array_program import ArrayProgram, Value


def refuse(equation: Any, why: str) -> RequestError:
    """The error for a primitive in a form that has no translation."""
    return RequestError(
        f"the network uses `{equation.primitive.name}` {why}, which cannot be exported to ONNX or NumPy. Export to "
        ".stablehlo, which holds any network."
    )


def full(program: ArrayProgram, equation: Any, operands: list[Value], place: int = 0) -> Value:
    """An operand with all its axes as long as the equation says."""
    return program.expand(operands[place], equation.invars[place].aval.shape)


def _within(program: ArrayProgram, indices: Value, last: int) -> Value:
    bounds = [program.constant(np.asarray(end, indices.dtype)) for end in (0, last)]
    return program.elementwise("minimum", program.elementwise("maximum", indices, bounds[0]), bounds[1])


def _filled(program: ArrayProgram, equation: Any, taken: Value, indices: Value, last: int) -> Value:
    """NaN, or the filling, where an index lies outside."""
    filling = equation.params["fill_value"]
    if filling is None:
        filling = np.nan if taken.dtype.kind == "f" else np.iinfo(taken.dtype).min
    low = program.elementwise("greater_equal", indices, program.constant(np.zeros((), indices.dtype)), dtype=bool)
    high = program.elementwise("less_equal", indices, program.constant(np.asarray(last, indices.dtype)), dtype=bool)
    inside = program.elementwise("and", low, high)
    return program.elementwise("where", inside, taken, program.constant(np.asarray(filling, taken.dtype)))


def _fixed_gather(program: ArrayProgram, equation: Any, x: Value, starts: np.ndarray) -> Value:
    """One piece of the operand at a known place."""
    given, numbers = equation.params, equation.params["dimension_numbers"]
    place = dict(zip(numbers.start_index_map, starts.tolist(), strict=True))
    cuts = []
    for axis, (size, length) in enumerate(zip(given["slice_sizes"], x.shape, strict=True)):
        if is_symbolic_dim(length) or size == length:
            cuts.append(slice(None))
            continue
        first = min(max(int(place.get(axis, 0)), 0), int(length) - int(size))
        cuts.append(slice(first, first + int(size)))
    return program.reshape(program.slice(x, cuts), equation.outvars[0].aval.shape)


def _only(indices: Value, column: int) -> list[slice]:
    last = slice(None) if indices.shape[-1] == 1 else slice(column, column + 1)
    return [*[slice(None)] * (indices.ndim - 1), last]


def translate_gather(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    """Entries along one axis, at computed indices or known ones."""
    x, indices = full(program, equation, operands), full(program, equation, operands, 1)
    given, numbers = equation.params, equation.params["dimension_numbers"]
    fills = given["mode"] == lax.GatherScatterMode.FILL_OR_DROP
    if indices.constant is not None and indices.ndim == 1 and not fills:
        return _fixed_gather(program, equation, x, indices.constant)
    # Where the piece is as long as its axis, the index is 0 whatever is given.
    free = [(k, axis) for k, axis in enumerate(numbers.start_index_map) if given["slice_sizes"][axis] != x.shape[axis]]
    chosen = free or [(0, numbers.start_index_map[0])]
    if numbers.operand_batching_dims or len(chosen) != 1 or (fills and indices.shape[-1] != 1):
        raise refuse(equation, "with indices into several axes")
    ((column, axis),) = chosen
    indices = program.slice(indices, _only(indices, column))
    size, length, result = int(given["slice_sizes"][axis]), int(x.shape[axis]), equation.outvars[0].aval
    others = [place for place in range(x.ndim) if place != axis]
    if any(given["slice_sizes"][place] != x.shape[place] for place in others):
        raise refuse(equation, "with indices into several axes")
    batch = list(indices.shape[:-1])
    raw = program.reshape(indices, batch)
    places = raw if indices.constant is not None and not fills else _within(program, raw, length - size)
    if axis in numbers.collapsed_slice_dims:
        taken, kept = program.take(x, places, axis), others
    else:
        offsets = program.constant(np.arange(size, dtype=indices.dtype))
        places = program.elementwise("add", program.reshape(places, [*batch, 1]), offsets)
        taken, kept = program.take(x, places, axis), list(range(x.ndim))
    # Now: axes before, the batch's, the piece of the axis if it is kept, axes after. JAX says where each belongs.
    where = {place: number if place < axis else number + len(batch) for number, place in enumerate(kept)}
    inner = iter(range(axis, axis + len(batch)))
    offset = iter(kept)
    order = [where[next(offset)] if out in numbers.offset_dims else next(inner) for out in range(len(result.shape))]
    if fills:
        if size != 1:
            raise refuse(equation, "that fills pieces beyond the end")
        mask = program.reshape(raw, [1] * axis + batch + [1] * (taken.ndim - axis - len(batch)))
        taken = _filled(program, equation, taken, mask, length - 1)
    return program.transpose(taken, order)


def _inverse(axes: Any) -> list[int]:
    return [int(place) for place in np.argsort(axes)]


def convolution(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
    """A convolution, its axes brought into the order of ONNX and back."""
    given, numbers = equation.params, equation.params["dimension_numbers"]
    backwards = any(low < 0 or high < 0 for low, high in given["padding"])
    if given["batch_group_count"] != 1 or any(step != 1 for step in given["lhs_dilation"]) or backwards:
        raise refuse(equation, "with gaps between its inputs (as a transposed convolution)")
    x = program.transpose(full(program, equation, operands), numbers.lhs_spec)
    kernel = program.transpose(full(program, equation, operands, 1), numbers.rhs_spec)
    result = equation.outvars[0].aval
    found = program.step(
        "convolve",
        [x, kernel],
        [result.shape[axis] for axis in numbers.out_spec],
        strides=tuple(map(int, given["window_strides"])),
        padding=tuple((int(low), int(high)) for low, high in given["padding"]),
        dilation=tuple(map(int, given["rhs_dilation"])),
        groups=int(given["feature_group_count"]),
    )
    return program.transpose(found, _inverse(numbers.out_spec))


def pooling(operation: str, filling: float) -> Callable[[ArrayProgram, Any, list[Value]], Value]:
    """The rule that combines the entries of each window."""

    def rule(program: ArrayProgram, equation: Any, operands: list[Value]) -> Value:
        x, given, result = full(program, equation, operands), equation.params, equation.outvars[0].aval
        if any(step != 1 for step in given["base_dilation"]) or x.dtype.kind != "f":
            raise refuse(equation, "with gaps between its inputs, or on integers")
        x = program.pad(x, [(int(low), int(high)) for low, high in given["padding"]], filling)
        sizes, strides, gaps = (given[f"window_{name}"] for name in ("dimensions", "strides", "dilation"))
        found: Value | None = None
        for offsets in itertools.product(*map(range, sizes)):
            cuts = []
            for offset, size, stride, gap, count in zip(offsets, sizes, strides, gaps, result.shape, strict=True):
                if size == 1 and stride == 1:
                    cuts.append(slice(None))
                    continue
                first = offset * gap
                cuts.append(slice(first, first + (int(count) - 1) * stride + 1, None if stride == 1 else stride))
            piece = program.slice(x, cuts)
            found = piece if found is None else program.elementwise(operation, found, piece)
        assert found is not None
        return found

    return rule
