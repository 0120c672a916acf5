"""Products of sparse rows with a table: the non-zeros are read, and nothing else (row G2).

    weighted_sums(table, rows)            (n, units): for each row, sum over its slots of value * table[column]
    products_at(table, columns, codes)    (n, slots): for each slot, table[column] times the code of its row

The table is (width, units), so that what a non-zero reads is contiguous. The gradient in the table is a sum into the
rows of the table that occur. All three are primitives of JAX, so that a batch of examples, however nested (`vmap` over
examples, over a population), becomes one gather and one scatter; derivatives of any order are products of this kind.

The loop goes over the filled slots of all rows together, some hundred at a time: a few long rows cost no more than
their own non-zeros. Each row's sum is taken in the order of its slots, whatever rows are beside it.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float, Int

from .rows import SparseRows

_AT_ONCE = 256  # slots in one turn of the loop: on two cores 64 rows of 130 words x 256 units take 0.5 ms, dense 4.3

_sums = Primitive("sparse_weighted_sums")
_spread = Primitive("sparse_spread")
_along = Primitive("sparse_products_at")


def _over_slots(
    columns: Int[Array, "n slots"],
    width: int,
    start: Array,
    turn: Callable[[Array, Array, Array, Array], Array],
) -> Array:
    """`turn(made, row, slot, filled)` for all filled slots, a few hundred in each turn."""
    count, slots = columns.shape
    ends = jnp.cumsum(jnp.sum(columns < width, axis=1, dtype=jnp.int32))

    def body(state: tuple[Array, Array]) -> tuple[Array, Array]:
        first, made = state
        place = first + jnp.arange(_AT_ONCE, dtype=jnp.int32)
        row = jnp.minimum(jnp.searchsorted(ends, place, side="right", method="compare_all"), count - 1)
        slot = place - jnp.where(row > 0, ends[row - 1], 0)
        return first + _AT_ONCE, turn(made, row, jnp.minimum(slot, slots - 1), place < ends[-1])

    begin = (jnp.zeros((), jnp.int32), start)
    return jax.lax.while_loop(lambda state: state[0] < ends[-1], body, begin)[1]


def _sums_of(table: Array, columns: Array, values: Array, *, width: int) -> Array:
    """(n, units) from a table (tables * width, units); a column beyond it stands for an empty slot."""

    def turn(made: Array, row: Array, slot: Array, filled: Array) -> Array:
        read = table.at[columns[row, slot]].get(mode="clip")
        weight = values[row, slot][:, None]
        return made.at[row].add(jnp.where(filled[:, None], weight * read, 0.0), mode="promise_in_bounds")

    return _over_slots(columns, width, jnp.zeros((columns.shape[0], table.shape[1]), table.dtype), turn)


def _spread_of(columns: Array, values: Array, slopes: Array, *, width: int) -> Array:
    """(width, units): each slot's value times its row's slope, summed into the slot's column."""

    def turn(made: Array, row: Array, slot: Array, filled: Array) -> Array:
        place = jnp.where(filled, columns[row, slot], width)
        return made.at[place].add(values[row, slot][:, None] * slopes[row], mode="drop")

    return _over_slots(columns, width, jnp.zeros((width, slopes.shape[1]), slopes.dtype), turn)


def _along_of(table: Array, columns: Array, slopes: Array, *, width: int) -> Array:
    """(n, slots): each slot's row of the table times its row's slope; 0 for an empty slot."""

    def turn(made: Array, row: Array, slot: Array, filled: Array) -> Array:
        read = table.at[columns[row, slot]].get(mode="clip")
        found = (read * slopes[row]) @ jnp.ones(slopes.shape[1], slopes.dtype)  # a third of the time of a sum
        return made.at[jnp.where(filled, row, columns.shape[0]), slot].set(found, mode="drop")

    return _over_slots(columns, width, jnp.zeros(columns.shape, table.dtype), turn)


def _defined(primitive: Primitive, function: Callable[..., Array], shape: Callable[..., tuple[int, ...]]) -> None:
    """A primitive that runs this function; its result has this shape and the type of the first argument of floats."""

    def outline(*arguments: Any, width: int) -> Any:
        kind = next(one.dtype for one in arguments if jnp.issubdtype(one.dtype, jnp.floating))
        return jax.core.ShapedArray(shape(*arguments, width=width), kind)

    primitive.def_impl(jax.jit(function, static_argnames="width"))
    primitive.def_abstract_eval(outline)
    mlir.register_lowering(primitive, mlir.lower_fun(function, multiple_results=False))


_defined(_sums, _sums_of, lambda table, columns, values, width: (columns.shape[0], table.shape[1]))
_defined(_spread, _spread_of, lambda columns, values, slopes, width: (width, slopes.shape[1]))
_defined(_along, _along_of, lambda table, columns, slopes, width: columns.shape)


# --- derivatives: all are linear in each of their arguments that are numbers


def _through(primitive: Primitive, place: int) -> Callable[..., Array]:
    """The tangent in one argument: the same product with the tangent in its place."""

    def tangent(change: Any, *arguments: Any, **static: Any) -> Array:
        given = list(arguments)
        given[place] = change
        found: Array = primitive.bind(*given, **static)
        return found

    return tangent


ad.defjvp(_sums, _through(_sums, 0), None, _through(_sums, 2))
ad.defjvp(_spread, None, _through(_spread, 1), _through(_spread, 2))
ad.defjvp(_along, _through(_along, 0), None, _through(_along, 2))


def _sums_transposed(slopes: Any, table: Any, columns: Any, values: Any, *, width: int) -> tuple[Any, None, Any]:
    if ad.is_undefined_primal(table):
        return (None if _is_zero(slopes) else _spread.bind(columns, values, slopes, width=width)), None, None
    return None, None, None if _is_zero(slopes) else _along.bind(table, columns, slopes, width=width)


def _spread_transposed(change: Any, columns: Any, values: Any, slopes: Any, *, width: int) -> tuple[None, Any, Any]:
    if ad.is_undefined_primal(slopes):
        return None, None, None if _is_zero(change) else _sums.bind(change, columns, values, width=width)
    return None, (None if _is_zero(change) else _along.bind(change, columns, slopes, width=width)), None


def _along_transposed(values: Any, table: Any, columns: Any, slopes: Any, *, width: int) -> tuple[Any, None, Any]:
    if ad.is_undefined_primal(table):
        return (None if _is_zero(values) else _spread.bind(columns, values, slopes, width=width)), None, None
    return None, None, None if _is_zero(values) else _sums.bind(table, columns, values, width=width)


def _is_zero(slopes: Any) -> bool:
    return type(slopes) is ad.Zero


ad.primitive_transposes[_sums] = _sums_transposed
ad.primitive_transposes[_spread] = _spread_transposed
ad.primitive_transposes[_along] = _along_transposed


# --- batches: more rows of one table, or of one long table made of several


def _leading(arguments: Any, axes: Any) -> tuple[int, list[Any]]:
    """How many there are, and the arguments with that axis first; those without it stay."""
    size = next(one.shape[axis] for one, axis in zip(arguments, axes, strict=True) if axis is not None)
    moved = [one if axis is None else jnp.moveaxis(one, axis, 0) for one, axis in zip(arguments, axes, strict=True)]
    return size, moved


def _laid_out(one: Array, axis: Any, size: int) -> Array:
    """The rows of all, one after the other."""
    several = jnp.broadcast_to(one, (size, *one.shape)) if axis is None else one
    return several.reshape(-1, several.shape[-1])


def _columns_apart(columns: Array, axis: Any, size: int, width: int) -> Array:
    """Columns of tables that lie one after the other; of an empty slot that of no table."""
    several = jnp.broadcast_to(columns, (size, *columns.shape)) if axis is None else columns
    offsets = width * jnp.arange(size, dtype=columns.dtype)[:, None, None]
    apart = jnp.where(several < width, several + offsets, size * width)
    return apart.reshape(-1, columns.shape[-1])


def _sums_batched(arguments: Any, axes: Any, *, width: int) -> tuple[Array, int]:
    size, (table, columns, values) = _leading(arguments, axes)
    if axes[0] is None:
        columns = _laid_out(columns, axes[1], size)
    else:
        table, columns = table.reshape(size * width, -1), _columns_apart(columns, axes[1], size, width)
        width = size * width
    found = _sums.bind(table, columns, _laid_out(values, axes[2], size), width=width)
    return found.reshape(size, -1, found.shape[-1]), 0


def _spread_batched(arguments: Any, axes: Any, *, width: int) -> tuple[Array, int]:
    size, (columns, values, slopes) = _leading(arguments, axes)
    apart = _columns_apart(columns, axes[0], size, width)
    rows = [_laid_out(one, axis, size) for one, axis in ((values, axes[1]), (slopes, axes[2]))]
    found = _spread.bind(apart, *rows, width=size * width)
    return found.reshape(size, width, -1), 0


def _along_batched(arguments: Any, axes: Any, *, width: int) -> tuple[Array, int]:
    size, (table, columns, slopes) = _leading(arguments, axes)
    if axes[0] is None and axes[1] is None:  # the same columns for many codes: a small dense table
        few = table.at[columns].get(mode="fill", fill_value=0.0)
        return jnp.einsum("nku,anu->ank", few, slopes), 0
    if axes[0] is None:
        columns = _laid_out(columns, axes[1], size)
    else:
        table, columns = table.reshape(size * width, -1), _columns_apart(columns, axes[1], size, width)
        width = size * width
    found = _along.bind(table, columns, _laid_out(slopes, axes[2], size), width=width)
    return found.reshape(size, -1, found.shape[-1]), 0


batching.primitive_batchers[_sums] = _sums_batched
batching.primitive_batchers[_spread] = _spread_batched
batching.primitive_batchers[_along] = _along_batched


def weighted_sums(table: Float[Array, "width units"], rows: SparseRows) -> Float[Array, "*n units"]:
    """For each row the sum of its values times the rows of the table that their columns name."""
    lead, slots = rows.columns.shape[:-1], rows.columns.shape[-1]
    columns, values = jnp.asarray(rows.columns).reshape(-1, slots), jnp.asarray(rows.values).reshape(-1, slots)
    found = _sums.bind(table, columns, values.astype(table.dtype), width=rows.width)
    return found.reshape(*lead, found.shape[-1])


def products_at(
    table: Float[Array, "width units"], columns: Int[Array, "*n slots"], codes: Float[Array, "*n units"]
) -> Float[Array, "*n slots"]:
    """For each slot the product of the table's row that its column names with the code of its own row; 0 if empty."""
    lead, slots = columns.shape[:-1], columns.shape[-1]
    flat = codes.reshape(-1, codes.shape[-1]).astype(table.dtype)
    return _along.bind(table, columns.reshape(-1, slots), flat, width=table.shape[0]).reshape(*lead, slots)


def times_table(x: Any, table: Float[Array, "width units"]) -> Float[Array, "*n units"]:
    """One example or several, dense or sparse, times a table."""
    return weighted_sums(table, x) if isinstance(x, SparseRows) else x @ table


def weighed(weight: Float[Array, "..."], x: Any, turned: bool) -> Float[Array, "*n out"]:
    """Wx; `turned` weights are (in, out), so that what a non-zero of a sparse input reads lies together."""
    return times_table(x, weight) if turned else weight @ x
