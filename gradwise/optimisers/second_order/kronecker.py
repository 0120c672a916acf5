"""The natural gradient with a Kronecker-factored curvature (row H6): one pair of small matrices per layer.

    Kronecker(learning_rate=0.3, damping=0.1)
    Kronecker(curvature="exact", every_updates=1.0)     exact factors: for few outputs

For a weight matrix used as W x, one example's part of the Gauss-Newton matrix (the Fisher matrix, where the loss is a
log-likelihood) is d d' (x) x x', with d a slope of the layer's result. The mean of such products over the examples is
taken as the product of their means, G (x) A, whose inverse is that of two small matrices (Martens and Grosse 2015).
Everything here follows from that alone; the constants were chosen by measurement.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Bool, Float, Key, PyTree, Scalar

from ...curvature.example_gradients import Terms, example_terms, root_columns
from ...curvature.objective import Objective
from ...runtime import control_flow
from ...specs.contracts import AbstractOptimiser
from ...specs.knobs import is_off, knob, switch
from ...specs.priors import LogUniform, Uniform
from ...specs.schedules import AbstractSchedule, Constant
from ..first_order.schedules import RateState, present_rate, scale_by_rate
from ..first_order.sgd import LEARNING_RATE
from .natural_gradient import DAMPING, Incoming, by_leaf, incoming, rows_by_unit

_ASKER = "Kronecker"
_DRAW = 0x6B726F6E  # sets the draws of the curvature apart from all else that is drawn from an update's key
_Pair = tuple[Array, Array]  # G, of the units' slopes, and A, of the inputs and the bias's 1: rows, then columns


class _KroneckerState(NamedTuple):
    factors: tuple[_Pair, ...]
    inverses: tuple[_Pair, ...]
    square: PyTree  # the diagonal, for what has no factors
    velocity: PyTree
    rate: RateState


def _matrix(a: Array, b: Array) -> Array:
    """a b in full precision: an accelerator's short products would spoil what an ill-conditioned inverse is for."""
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


# --- the factors


def _layers(parameters: PyTree, largest: int) -> list[Incoming]:
    """The weight matrices small enough for factors."""
    leaves = jax.tree.leaves(parameters)
    return [
        layer
        for layer in incoming(parameters)
        if leaves[layer.weight].ndim == 2 and max(leaves[layer.weight].shape) <= largest
    ]


def _tapped(layer: Incoming, terms: Terms, leaves: list[Array]) -> Incoming | None:
    """The layer as the network uses it; None where it is not of the form W x + bias."""
    if layer.weight not in terms.inputs:
        return None
    if layer.bias is None:
        return layer  # its rows may be the inputs: `_seen` knows
    turned = layer.weight in terms.flipped
    units = leaves[layer.weight].shape[1 if turned else 0]
    return Incoming(layer.weight, layer.bias, turned) if leaves[layer.bias].size == units else None


def _terms(objective: Objective, parameters: PyTree, curvature: str) -> Terms:
    """Slopes whose outer products have the Gauss-Newton matrix for their sum, or for their mean over the draws."""
    if curvature == "exact":
        return example_terms(objective, parameters, _ASKER, root_columns(objective, _ASKER))
    root = objective.root(_ASKER)

    def columns(output: Array, target: Array, key: Key[Array, ""]) -> Float[Array, "1 k"]:
        return root(output, target, jr.normal(key, output.shape, output.dtype))[None]

    keys = jr.split(jr.fold_in(objective.noise, _DRAW), objective.batch.inputs.shape[0])
    return example_terms(objective, parameters, _ASKER, columns, keys)


def _seen(layer: Incoming, terms: Terms, counted: Array) -> _Pair:
    """The factors on this batch. `counted` is the examples' mean weight: the criterion divides by their number."""
    root = jnp.sqrt(terms.weights / terms.total)  # on both sides of the product, which so stays symmetric
    x = terms.inputs[layer.weight]
    if layer.bias is not None:
        x = jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=1)
    x = root[:, None] * x
    d = root[:, None, None] * terms.slopes[layer.weight]
    d = d.reshape(-1, d.shape[-1])
    pair = counted * _matrix(d.T, d), _matrix(x.T, x)
    return pair[::-1] if layer.bias is None and layer.weight in terms.flipped else pair


def _ratio(units: Array, inputs: Array) -> Scalar:
    """How the damping is shared: the root of the ratio of the mean eigenvalues of A and G.

    Units and inputs that are never used (dead pixels, the padding of a narrower network) do not count.
    """

    def size(matrix: Array) -> Scalar:
        diagonal = jnp.diagonal(matrix)
        return jnp.sum(diagonal) / jnp.maximum(jnp.sum(diagonal > 0), 1)

    a, g = size(inputs), size(units)
    usable = (a > 0) & (g > 0)
    return jnp.where(usable, jnp.sqrt(jnp.where(usable, a, 1.0) / jnp.where(usable, g, 1.0)), 1.0)


def _inverse(matrix: Float[Array, "n n"], damping: Scalar, before: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """(matrix + damping I)^-1, with as much more damping as it takes to be one; else the one before."""
    unit = jnp.eye(matrix.shape[0], dtype=matrix.dtype)
    trace = jnp.trace(matrix)

    def attempt(carry: tuple[Scalar, Array]) -> tuple[Scalar, Array]:
        extra = carry[0] * 30.0
        root = jnp.linalg.cholesky(matrix + (damping + extra) * unit)
        half = jax.scipy.linalg.solve_triangular(root, unit, lower=True)
        return extra, _matrix(half.T, half)

    def failed(carry: tuple[Scalar, Array]) -> Bool[Array, ""]:
        return ~jnp.all(jnp.isfinite(carry[1])) & (carry[0] <= trace)

    least = jnp.finfo(matrix.dtype).eps * trace / 30.0
    found = jax.lax.while_loop(failed, attempt, (least, jnp.full_like(matrix, jnp.nan)))[1]
    return jnp.where(jnp.all(jnp.isfinite(found)), found, before)


def _inverses(factors: tuple[_Pair, ...], before: tuple[_Pair, ...], damping: Any) -> tuple[_Pair, ...]:
    """Each factor's own inverse: (G + sqrt(damping) / pi I)^-1 and (A + pi sqrt(damping) I)^-1.

    One after another: each one's damping holds 0 times a number of the one before. In a population each inversion is
    a batch of them that waits for free threads, and several side by side can wait for one another for ever.
    """
    pairs = []
    nothing = jnp.zeros(())
    for (units, inputs), (old_units, old_inputs) in zip(factors, before, strict=True):
        root, ratio = jnp.asarray(damping, units.dtype) ** 0.5, _ratio(units, inputs)
        first = _inverse(units, root / ratio + nothing.astype(root.dtype), old_units)
        second = _inverse(inputs, root * ratio + 0.0 * first[0, 0], old_inputs)
        nothing = 0.0 * second[0, 0]
        pairs.append((first, second))
    return tuple(pairs)


def _blended_factors(
    layers: list[Incoming | None], terms: Terms, objective: Objective, before: tuple[_Pair, ...], share: Scalar
) -> tuple[_Pair, ...]:
    """The running means of the factors."""
    counted = jnp.sum(terms.weights) / jnp.maximum(jnp.sum(objective.batch.present), 1.0)
    new = [old if layer is None else _seen(layer, terms, counted) for layer, old in zip(layers, before, strict=True)]
    return jax.tree.map(lambda old, seen: old + share.astype(old.dtype) * (seen - old), before, tuple(new))


def _blended_square(layers: list[Incoming | None], terms: Terms, before: PyTree, share: Scalar) -> PyTree:
    """The running mean of the curvature's diagonal, where there are no factors."""
    covered = {number for layer in layers if layer is not None for number in (layer.weight, layer.bias)}
    seen = jax.tree.leaves(terms.mean_square())
    leaves, structure = jax.tree.flatten(before)
    for number, (old, new) in enumerate(zip(leaves, seen, strict=True)):
        if number not in covered:
            leaves[number] = old + share.astype(old.dtype) * (new - old)
    return jax.tree.unflatten(structure, leaves)


# --- the rule


class Kronecker(AbstractOptimiser):
    """The natural gradient with a Kronecker-factored Gauss-Newton matrix (after Martens and Grosse 2015).

        A <- memory A + (1 - memory) mean of x x',    G <- memory G + (1 - memory) mean of d d'
        D = (G + sqrt(damping) / pi I)^-1  dL/dW  (A + pi sqrt(damping) I)^-1,    pi^2 = mean eigenvalue of A / of G
        v <- momentum v + min(1, sqrt(clip / (rate^2 D . dL/dW))) D,    theta <- theta - rate v

    x holds a layer's inputs and a 1 for its bias, where a `weight` has a `bias` beside it; d = J' S e, with S S' the
    second derivative of the loss in the outputs, J their Jacobian in the layer's result, and e standard normal, so
    that d d' is right in the mean ("sampled": one back-propagation), or each unit vector in turn ("exact"). `clip`
    bounds the length of a step as the curvature measures it, about twice how much the predictions may move
    (Kullback-Leibler), before momentum adds the last steps. Parameters that are not used as W x (gains, shared
    weights), and matrices with a side above `largest`, get g / (v + damping), v the diagonal of the same curvature.
    The factors are of the loss alone; a penalty is in the gradient.
    """

    needs_objective = True
    learning_rate: float = knob(0.3, **LEARNING_RATE)
    momentum: float = knob(
        0.9,
        allowed="[0, 1)",
        prior=Uniform(0.0, 0.99),
        row="C9",
        off=0.0,
        about="the share of the last step that is kept; tune it together with the mini-batch size",
    )
    damping: float = knob(
        0.1, prior=LogUniform(1e-3, 1.0), about="added to the curvature; if large: plain descent", **DAMPING
    )
    memory: float = knob(
        0.95, allowed="[0, 1)", prior=Uniform(0.8, 0.99), row="H6", about="memory of the factors, in updates"
    )
    clip: float = knob(
        0.003,
        allowed="[0, inf)",
        prior=LogUniform(1e-4, 1.0),
        row="H6",
        off=0.0,
        about="the largest squared step, measured by the curvature; 0 is no bound",
    )
    every_updates: float = knob(
        10.0, allowed="[1, inf)", prior=LogUniform(1.0, 100.0), row="H6", about="updates between two inversions"
    )
    curvature: str = switch(
        "sampled",
        allowed=("sampled", "exact"),
        row="H6",
        kind="optimiser",
        about="slopes of one random draw per example, or of all outputs: exact, at one back-propagation each",
    )
    largest: int = switch(
        4096, allowed="[1, inf)", row="H6", kind="optimiser", about="the largest side of a matrix that gets factors"
    )
    schedule: AbstractSchedule = Constant()

    def build(self) -> optax.GradientTransformationExtraArgs:
        return optax.GradientTransformationExtraArgs(self._init, self._update)

    def _init(self, parameters: PyTree) -> _KroneckerState:
        factors = []
        for rows in rows_by_unit(_layers(parameters, self.largest), parameters):
            units, inputs = rows.shape
            factors.append((jnp.zeros((units, units), rows.dtype), jnp.zeros((inputs, inputs), rows.dtype)))
        return _KroneckerState(
            factors=tuple(factors),
            inverses=jax.tree.map(jnp.array, tuple(factors)),
            square=optax.tree.zeros_like(parameters),
            velocity=() if is_off(self.momentum) else optax.tree.zeros_like(parameters),
            rate=scale_by_rate(self.learning_rate, self.schedule).init(parameters),
        )

    def _update(
        self,
        gradient: PyTree,
        state: _KroneckerState,
        parameters: PyTree,
        *,
        value: Any,
        objective: Objective,
        **_: Any,
    ) -> tuple[PyTree, _KroneckerState]:
        number = state.rate.update
        share = jnp.maximum(1.0 - self.memory, 1.0 / (number + 1))  # at first a plain mean
        terms = _terms(objective, parameters, self.curvature)
        layers = [_tapped(layer, terms, jax.tree.leaves(parameters)) for layer in _layers(parameters, self.largest)]
        factors = _blended_factors(layers, terms, objective, state.factors, share)
        square = _blended_square(layers, terms, state.square, share)
        # At first the factors change at every update; later an inverse may be a little old.
        due = (number < self.every_updates) | (jnp.mod(number, self.every_updates) < 1.0)
        inverses = control_flow.run_when(due, lambda old: _inverses(factors, old, self.damping), state.inverses)
        direction = jax.tree.map(lambda g, v: g / (v + self.damping), gradient, square)
        used = [(layer, pair) for layer, pair in zip(layers, inverses, strict=True) if layer is not None]
        chosen = [layer for layer, _ in used]
        rows = [
            _matrix(_matrix(units, matrix), inputs)
            for (_, (units, inputs)), matrix in zip(used, rows_by_unit(chosen, gradient), strict=True)
        ]
        direction = by_leaf(chosen, rows, direction)
        minus, rate = scale_by_rate(self.learning_rate, self.schedule).update(jnp.ones(()), state.rate, value=value)
        if not is_off(self.clip):
            length = jnp.maximum(minus**2 * optax.tree.vdot(direction, gradient), jnp.finfo(minus.dtype).tiny)
            factor = jnp.minimum(1.0, jnp.sqrt(self.clip / length))
            direction = jax.tree.map(lambda d: factor.astype(d.dtype) * d, direction)
        velocity = state.velocity
        if not is_off(self.momentum):
            velocity = direction = optax.tree.add_scale(direction, self.momentum, velocity)
        moves = jax.tree.map(lambda d: minus.astype(d.dtype) * d, direction)
        return moves, _KroneckerState(factors, inverses, square, velocity, rate)

    def rate(self, state: PyTree) -> Scalar:
        return present_rate(state)
