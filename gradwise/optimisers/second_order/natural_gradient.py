"""The natural gradient (row H6): the gradient divided by the second moments of the examples' gradients.

    DiagonalNatural(learning_rate=0.01)          one number per parameter
    Tonga(learning_rate=0.01, rank=5, block=10)  one low-rank matrix per unit, updated on line

A slope counts more if the examples agree on it, less if they contradict each other: the direction is
C^-1 g, with C = E[g_i g_i'] over the examples or over recent updates, not centred (Le Roux, Manzagol and Bengio 2008).
C is not the Fisher matrix, because it uses the true targets. `Kronecker` uses the Fisher matrix.
"""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree, Scalar

from ...curvature.example_gradients import example_terms
from ...runtime import control_flow
from ...specs.contracts import AbstractOptimiser
from ...specs.knobs import is_off, knob, switch
from ...specs.paths import named_leaves
from ...specs.priors import Choice, LogUniform, Uniform
from ...specs.schedules import AbstractSchedule, Constant
from ..first_order.schedules import present_rate, scale_by_rate
from ..first_order.sgd import LEARNING_RATE

DAMPING: dict[str, Any] = {"allowed": "(0, inf)", "row": "H6"}

# --- one number a parameter


class _DiagonalState(NamedTuple):
    square: PyTree
    update: Int[Array, ""]


def _by_squares(memory: Any, damping: Any, asker: str) -> optax.GradientTransformationExtraArgs:
    """g / (v + damping), v the running mean of the examples' squared gradients."""

    def init(parameters: PyTree) -> _DiagonalState:
        return _DiagonalState(optax.tree.zeros_like(parameters), jnp.zeros((), jnp.int32))

    def update(
        gradient: PyTree, state: _DiagonalState, parameters: PyTree = None, *, objective: Any, **_: Any
    ) -> tuple[PyTree, _DiagonalState]:
        seen = example_terms(objective, parameters, asker).mean_square()
        count = state.update + 1
        share = jnp.maximum(1.0 - memory, 1.0 / count)  # at first a plain mean: nothing of the start at 0 is left
        square = jax.tree.map(lambda v, new: v + jnp.asarray(share, v.dtype) * (new - v), state.square, seen)
        moved = jax.tree.map(lambda g, v: g / (v + damping), gradient, square)
        return moved, _DiagonalState(square, count)

    return optax.GradientTransformationExtraArgs(init, update)


class DiagonalNatural(AbstractOptimiser):
    """The natural gradient with a diagonal covariance (Le Roux et al. 2008).

        v <- memory v + (1 - memory) mean over the examples of (dL_i / dtheta)^2
        theta <- theta - rate g / (v + damping)

    Adagrad and RMSprop divide by the *root* of the squared *batch* gradient, so their steps have the size of the rate
    in each parameter. Here there is no root, so the steps have the units of a parameter (g / g^2), and the square is
    taken example by example before the mean: it does not shrink with the size of the batch, and it measures how much
    the examples disagree. A penalty is part of g but not of v.
    """

    needs_objective = True
    learning_rate: float = knob(0.01, **LEARNING_RATE)
    memory: float = knob(
        0.99, allowed="[0, 1)", prior=Uniform(0.9, 0.999), row="H6", about="memory of the squared gradients"
    )
    damping: float = knob(
        0.01,
        prior=LogUniform(1e-4, 1.0),
        about="added to the squared gradients; if large: plain descent",
        **DAMPING,
    )
    schedule: AbstractSchedule = Constant()

    def build(self) -> optax.GradientTransformationExtraArgs:
        direction = _by_squares(self.memory, self.damping, "DiagonalNatural")
        return optax.chain(direction, scale_by_rate(self.learning_rate, self.schedule))

    def rate(self, state: PyTree) -> Scalar:
        return present_rate(state)


# --- the weights that come into one unit


class Incoming(NamedTuple):
    """Where a layer's weights and biases stand among the leaves; `turned` where the units are the second axis."""

    weight: int
    bias: int | None
    turned: bool


def incoming(parameters: PyTree) -> list[Incoming]:
    """The layers of any model: every array, `x.weight` together with an `x.bias` that has a number for each unit.

    The first axis counts the units, or the second where the bias says so; an array of one axis is one unit.
    """
    named = named_leaves(parameters)
    places = {name: number for number, (name, _) in enumerate(named)}
    pairs: dict[int, Incoming] = {}
    for name, number in places.items():
        place, dot, last = name.rpartition(".")
        bias = places.get(f"{place}{dot}bias") if last == "weight" else None
        shape = jnp.shape(named[number][1])
        if bias is not None and len(shape) >= 2:
            size = jnp.size(named[bias][1])
            turned = len(shape) == 2 and size == shape[1] != shape[0]
            if turned or size == shape[0]:
                pairs[number] = Incoming(number, bias, turned)
    biases = {layer.bias for layer in pairs.values()}
    return [pairs.get(number, Incoming(number, None, False)) for number in range(len(named)) if number not in biases]


def rows_by_unit(layers: list[Incoming], tree: PyTree) -> list[Array]:
    """For each layer a matrix, a row a unit: its incoming weights, then its bias."""
    leaves = jax.tree.leaves(tree)
    rows = []
    for layer in layers:
        weight = leaves[layer.weight].T if layer.turned else leaves[layer.weight]
        weight = weight.reshape(weight.shape[0] if weight.ndim > 1 else 1, -1)
        bias = [] if layer.bias is None else [leaves[layer.bias].reshape(-1, 1)]
        rows.append(jnp.concatenate([weight, *bias], axis=1))
    return rows


def by_leaf(layers: list[Incoming], rows: list[Array], like: PyTree) -> PyTree:
    """The tree that `rows_by_unit` read."""
    leaves, structure = jax.tree.flatten(like)
    for layer, matrix in zip(layers, rows, strict=True):
        if layer.bias is not None:
            leaves[layer.bias] = matrix[:, -1].reshape(leaves[layer.bias].shape)
            matrix = matrix[:, :-1]
        leaves[layer.weight] = matrix.T if layer.turned else matrix.reshape(leaves[layer.weight].shape)
    return jax.tree.unflatten(structure, leaves)


# --- a matrix of low rank a unit


class _TongaState(NamedTuple):
    columns: tuple[Float[Array, "u c n"], ...]  # X' of each unit, layer by layer; a column is as it was when it came
    gram: Float[Array, "c c units"]  # X'X of the same, all units of the network together
    scale: Float[Array, " c"]  # what discounting has left of each column's length
    weight: Float[Array, ""]  # what discounting has left of all updates' weights
    place: Int[Array, ""]  # updates since the last eigenvectors
    mean: PyTree  # the smoothed gradient, where it is asked for


_Factors = tuple[tuple[Array, ...], Array, Array]


def _exact(form: str, *arrays: Array) -> Array:
    """A sum of products in full precision: with an accelerator's short ones the Gram matrix would not stay positive."""
    return jnp.einsum(form, *arrays, precision=jax.lax.Precision.HIGHEST)


def _split(values: Float[Array, "c units"], columns: tuple[Array, ...]) -> list[Array]:
    """What belongs to each layer's units."""
    ends = list(itertools.accumulate(matrix.shape[0] for matrix in columns))
    return [values[:, start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _inner(columns: tuple[Array, ...], vectors: list[Array]) -> Float[Array, "c units"]:
    """X'v of every unit."""
    pairs = zip(columns, vectors, strict=True)
    return jnp.concatenate([_exact("ucn,un->uc", matrix, v).T for matrix, v in pairs], axis=1)


def _combined(coefficients: Float[Array, "c units"], columns: tuple[Array, ...]) -> list[Array]:
    """X c of every unit."""
    pairs = zip(_split(coefficients, columns), columns, strict=True)
    return [_exact("uc,ucn->un", mine.T, matrix) for mine, matrix in pairs]


def _compressed(factors: _Factors, rank: int) -> _Factors:
    """X replaced by its `rank` longest principal axes, through the eigenvectors of its Gram matrix: U = X V."""
    columns, gram, scale = factors
    # All units in one call: many such calls side by side can wait for one another for ever on a machine of few cores.
    values, vectors = jnp.linalg.eigh(jnp.moveaxis(scale[:, None, None] * gram * scale[:, None], 2, 0))
    chosen = jnp.moveaxis(scale[:, None] * vectors[..., -rank:], 0, 2)  # (c, rank, units)
    kept = []
    for number, matrix in enumerate(columns):
        mine = jnp.stack([_split(chosen[:, k], columns)[number] for k in range(rank)])
        kept.append(jnp.zeros_like(matrix).at[:, :rank].set(_exact("kcu,ucn->ukn", mine, matrix)))
    lengths = jnp.maximum(values[:, -rank:], 0.0).T
    gram = jnp.zeros_like(gram).at[jnp.arange(rank), jnp.arange(rank)].set(lengths)
    return tuple(kept), gram, jnp.ones_like(scale)


def _solved(matrix: Float[Array, "c c units"], right: Float[Array, "c units"]) -> Float[Array, "c units"]:
    """The solutions of many small positive definite systems, by elimination: no pivot of such a matrix is 0 or below.

    The units are the last axis, so that each step is one sweep over all of them.
    """
    table = jnp.concatenate([matrix, right[:, None]], axis=1)

    def eliminate(step: Any, table: Array) -> Array:
        pivot = table[step] / table[step, step]
        return (table - table[:, step, None] * pivot).at[step].set(pivot)

    return jax.lax.fori_loop(0, matrix.shape[0], eliminate, table)[:, -1]


def _tonga(rank: int, block: int, discount: Any, damping: Any, smoothing: Any) -> optax.GradientTransformationExtraArgs:
    """(C + damping I)^-1 g through the Gram matrix of the columns whose outer products make C."""
    size = rank + block

    def init(parameters: PyTree) -> _TongaState:
        shapes = [matrix.shape for matrix in jax.eval_shape(lambda p: rows_by_unit(incoming(p), p), parameters)]
        kind = jnp.result_type(*jax.tree.leaves(parameters))
        return _TongaState(
            columns=tuple(jnp.zeros((units, size, n), kind) for units, n in shapes),
            gram=jnp.zeros((size, size, sum(units for units, _ in shapes)), kind),
            scale=jnp.ones(size, kind),
            weight=jnp.zeros((), kind),
            place=jnp.zeros((), jnp.int32),
            mean=() if is_off(smoothing) else optax.tree.zeros_like(parameters),
        )

    def directions(g: list[Array], smooth: list[Array], state: _TongaState) -> list[Array]:
        scale = state.scale
        gram = scale[:, None, None] * state.gram * scale[:, None] / state.weight
        # Never less damping than the arithmetic resolves.
        damped = damping + size * jnp.finfo(gram.dtype).eps * jnp.trace(gram)
        system = gram + jnp.eye(size, dtype=gram.dtype)[..., None] * damped
        if smooth is g:  # g is the newest column, and (XX' + d I)^-1 X = X (X'X + d I)^-1: nothing cancels
            newest = jnp.arange(size) == rank + state.place - 1
            coefficients = scale[:, None] * _solved(system, jnp.where(newest[:, None], 1.0, jnp.zeros_like(gram[0])))
            return _combined(coefficients, state.columns)
        outside = scale[:, None] * _inner(state.columns, smooth)  # by Woodbury: it need not lie among the columns
        coefficients = scale[:, None] * _solved(system, outside) / state.weight
        inside, parts = _combined(coefficients, state.columns), _split(damped[None], state.columns)
        return [(s - x) / d.T for s, x, d in zip(smooth, inside, parts, strict=True)]

    def update(gradient: PyTree, state: _TongaState, parameters: PyTree = None, **_: Any) -> Any:
        layers = incoming(gradient)
        new = rows_by_unit(layers, gradient)
        mean, smooth = state.mean, new
        if not is_off(smoothing):
            mean = jax.tree.map(lambda m, g: (1.0 - smoothing) * m + smoothing * g, mean, gradient)
            smooth = rows_by_unit(layers, mean)
        full = state.place >= block
        factors = (state.columns, state.gram, state.scale)
        columns, gram, scale = control_flow.run_when(full, lambda found: _compressed(found, rank), factors)
        place = rank + jnp.where(full, 0, state.place)
        scale = (scale * jnp.asarray(discount, scale.dtype) ** 0.5).at[place].set(1.0)
        columns = tuple(x.at[:, place].set(g) for x, g in zip(columns, new, strict=True))
        row = _inner(columns, new)  # all that is new in the Gram matrix
        gram = gram.at[place].set(row).at[:, place].set(row)
        weight = jnp.asarray(discount * state.weight + 1.0, state.weight.dtype)
        state = _TongaState(columns, gram, scale, weight, (place - rank + 1).astype(jnp.int32), mean)
        return by_leaf(layers, directions(new, smooth, state), gradient), state

    return optax.GradientTransformationExtraArgs(init, update)


class Tonga(AbstractOptimiser):
    """The on-line natural gradient with a covariance of low rank for each unit (Le Roux, Manzagol and Bengio 2008).

        C_t = discount C_{t-1} + g_t g_t',    theta <- theta - rate (C_t / w_t + damping I)^-1 g

    one C for the incoming weights of each unit, g its part of the mini-batch's gradient, and w_t = discount w_{t-1} + 1
    the weight of all updates so far. Dividing by it is our addition: the sum alone grows 1 / (1 - discount) fold after
    the start, which would change the meaning of the rate at each update; the direction is otherwise the same.

    Discounted at every update, C_t = X X' with X = [discount^(b/2) U, discount^((b-1)/2) g_1, ..., g_b]. After b =
    `block` updates U becomes the `rank` longest principal axes of X, by the eigenvectors of its Gram matrix X'X, which
    grows by one row at each update. So no system larger than rank + block is ever solved. Every update reads
    rank + block numbers per parameter: the published 5 and 50 cost that much more than the defaults here.

    The source's columns are the gradients that the updates are made with, so one column an update, whatever the size of
    the mini-batch; its covariance is then that of mini-batch gradients. With `smoothing` below 1 the direction is
    that of the moving average of the gradients, g_bar <- (1 - smoothing) g_bar + smoothing g.
    """

    learning_rate: float = knob(0.01, **LEARNING_RATE)
    rank: int = switch(
        5, allowed="[1, 1000]", prior=Choice((2, 5, 10)), row="H6", kind="optimiser", about="principal axes per unit"
    )
    block: int = switch(
        10,
        allowed="[1, 1000]",
        prior=Choice((5, 10, 20)),
        row="H6",
        kind="optimiser",
        about="updates between two computations of the principal axes",
    )
    discount: float = knob(
        0.995, allowed="(0, 1]", prior=Uniform(0.9, 0.999), row="H6", about="share of the covariance kept per update"
    )
    damping: float = knob(
        0.01, prior=LogUniform(1e-4, 1.0), about="added to the covariance; if large: plain descent", **DAMPING
    )
    smoothing: float = knob(
        1.0,
        allowed="(0, 1]",
        prior=LogUniform(0.01, 1.0),
        row="C9",
        off=1.0,
        about="beta of the moving average of gradients; 1 is none",
    )
    schedule: AbstractSchedule = Constant()

    def build(self) -> optax.GradientTransformationExtraArgs:
        direction = _tonga(self.rank, self.block, self.discount, self.damping, self.smoothing)
        return optax.chain(direction, scale_by_rate(self.learning_rate, self.schedule))

    def rate(self, state: PyTree) -> Scalar:
        return present_rate(state)
