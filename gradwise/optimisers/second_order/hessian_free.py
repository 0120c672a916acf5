"""Hessian-free optimisation (rows H7, B6): Newton steps on a damped quadratic model, found by conjugate gradients.

    HessianFree()                                       batches of the whole training set, or thousands of examples
    HessianFree(curvature_parts=4, cg_steps=150)        curvature on a quarter of the batch, shorter solves
    HessianFree(curvature="hessian")                    for a plain `loss(model, batch, key)`

One update is one outer iteration (Martens 2010). With g the criterion's gradient on the batch and G its Gauss-Newton
matrix on one part of the batch, another part each update,

    minimise  phi(p) = g'p + p'(G + lambda I)p / 2     by conjugate gradients, from `carry` times the last solution,
    among the iterates kept on the way take the lowest on the whole batch, then shorten it until it is low enough,
    rho = (f(theta + p) - f(theta)) / (g'p + p'Gp / 2):   below 1/4 lambda grows by 3/2, above 3/4 it falls by 2/3.

G is never formed: it is a linear map, computed once per update, so that a product is one forward and one backward pass
through the network's linearisation, and the network itself is not run again while the system is solved.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PyTree, Scalar

from ...curvature import products
from ...curvature.example_gradients import example_terms
from ...curvature.objective import Objective
from ...runtime import line_search_state
from ...runtime.errors import RequestError
from ...specs.contracts import AbstractOptimiser
from ...specs.knobs import is_off, knob, switch
from ...specs.priors import Choice, LogUniform, Uniform

_FIRST_KEPT, _APART = 5.0, 1.3  # iterates 5, 7, 9, 11, 15, ... are kept: each is about 1.3 times as far as the last
_TOLERANCE, _LEAST_GAP, _GAPS = 5e-4, 10, 10  # the solve ends when phi gains less than this a step over a tenth of it
_SUFFICIENT, _SHORTER, _REDUCTIONS = 1e-2, 0.8, 60  # the line search: 0.8 ** 60 is 1.5e-6 of the step
_ROUNDING = 1e-6  # of the criterion: iterates that differ by less are alike, and the later one is taken
_POOR, _GOOD, _GROWS, _FALLS = 0.25, 0.75, 3.0 / 2.0, 2.0 / 3.0
_LEAST_DAMPING, _MOST_DAMPING = 1e-10, 1e10  # so that lambda and 1 / lambda stay numbers however long a run lasts


# --- the system


class Solved(NamedTuple):
    """A solve as it went: iterates kept on the way, the last among them, and phi at each."""

    iterates: Float[Array, "K P"]
    models: Float[Array, " K"]
    last: Int[Array, ""]  # the place of the last iterate; places after it hold nothing
    steps: Int[Array, ""]


class _Solving(NamedTuple):
    solved: Solved
    point: Float[Array, " P"]
    residual: Float[Array, " P"]
    direction: Float[Array, " P"]
    energy: Scalar  # residual . M^-1 residual
    history: Float[Array, " N"]  # phi after each step
    ended: Bool[Array, ""]


def kept_at(steps: int) -> tuple[int, ...]:
    """The steps whose iterates are kept, up to the first that is never passed."""
    marks = [math.ceil(_FIRST_KEPT)]
    while marks[-1] < steps:
        marks.append(math.ceil(_FIRST_KEPT * _APART ** len(marks)))
    return tuple(marks)


def conjugate_gradients(
    product: Callable[[Float[Array, " P"]], Float[Array, " P"]],
    gradient: Float[Array, " P"],
    start: Float[Array, " P"],
    scale: Float[Array, " P"],
    steps: int,
) -> Solved:
    """Minimises phi(p) = gradient'p + p'Ap/2, A the product's matrix, preconditioned by the diagonal `scale`.

    Ends after i steps where phi < 0 and (phi_i - phi_{i-k}) / phi_i < 5e-4 k with k = max(10, i/10), at the latest
    after `steps`. Where a direction has no positive curvature the last iterate is kept; if it is the first direction,
    one step along it (Dembo and Steihaug 1983), since otherwise nothing would be found.
    """
    marks = jnp.asarray(kept_at(steps))
    residual = product(start) + gradient
    downhill = residual / scale
    kept = jnp.zeros((marks.shape[0], start.shape[0]), start.dtype).at[0].set(start)
    phi = 0.5 * jnp.vdot(residual + gradient, start)
    none = jnp.zeros((), jnp.int32)
    solved = Solved(kept, jnp.zeros(marks.shape[0], start.dtype).at[0].set(phi), none, none)
    history = jnp.zeros(steps + 1, start.dtype).at[0].set(phi)
    energy = jnp.vdot(residual, downhill)
    begin = _Solving(solved, start, residual, -downhill, energy, history, jnp.zeros((), bool))

    def body(carry: _Solving) -> _Solving:
        image = product(carry.direction)
        curved = jnp.vdot(carry.direction, image)
        positive = curved > 0
        first = (carry.solved.steps == 0) & jnp.isfinite(curved)
        length = jnp.where(positive, carry.energy / jnp.where(positive, curved, 1.0), 1.0)
        moves = positive | first
        point = jnp.where(moves, carry.point + length * carry.direction, carry.point)
        residual = jnp.where(moves, carry.residual + length * image, carry.residual)
        downhill = residual / scale
        energy = jnp.vdot(residual, downhill)
        share = energy / jnp.where(carry.energy > 0, carry.energy, 1.0)
        phi = 0.5 * jnp.vdot(residual + gradient, point)

        count = carry.solved.steps + 1
        gap = jnp.maximum(_LEAST_GAP, -(-count // _GAPS))
        before = carry.history[jnp.maximum(count - gap, 0)]
        flat = (count > gap) & (phi < 0) & (phi - before > _TOLERANCE * gap * phi)
        # A place is written at each step until its mark is passed: so the last iterate is always there.
        place = jnp.where(moves, jnp.searchsorted(marks, count), carry.solved.last).astype(jnp.int32)
        solved = Solved(
            carry.solved.iterates.at[place].set(point), carry.solved.models.at[place].set(phi), place, count
        )
        history = carry.history.at[count].set(phi)
        direction = share * carry.direction - downhill
        return _Solving(solved, point, residual, direction, energy, history, ~positive | flat)

    return jax.lax.while_loop(lambda carry: ~carry.ended & (carry.solved.steps < steps), body, begin).solved


# --- moves to lower points only


def _walk_back(height: Callable[[Array], Scalar], solved: Solved, here: Scalar) -> tuple[Int[Array, ""], Scalar]:
    """From the last iterate back while that is lower: the place of the one to take, and its height."""
    rounding = _ROUNDING * jnp.abs(here)

    def body(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        place, lowest, _ = carry
        found = height(solved.iterates[place - 1])
        lower = (found < lowest - rounding) | jnp.isinf(lowest)  # where infinite: on to where the criterion has values
        return jnp.where(lower, place - 1, place), jnp.where(lower, found, lowest), lower

    begin = (solved.last, height(solved.iterates[solved.last]), jnp.ones((), bool))
    place, lowest, _ = jax.lax.while_loop(lambda carry: carry[2] & (carry[0] > 0), body, begin)
    return place, lowest


def _shorten(
    height: Callable[[Array], Scalar], move: Array, there: Scalar, here: Scalar, slope: Scalar
) -> tuple[Scalar, Bool[Array, ""]]:
    """The first of 1, 0.8, 0.64, ... times the move that is low enough, and whether there is one."""

    def low_enough(length: Scalar, found: Scalar) -> Bool[Array, ""]:
        return (found < here) & (found <= here + _SUFFICIENT * length * jnp.minimum(slope, 0.0))

    def body(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        length = _SHORTER * carry[0]
        return length, height(length * move), carry[2] + 1

    begin = (jnp.ones_like(there), there, jnp.zeros((), jnp.int32))
    length, found, _ = jax.lax.while_loop(
        lambda carry: ~low_enough(carry[0], carry[1]) & (carry[2] < _REDUCTIONS) & jnp.isfinite(here), body, begin
    )
    return length, low_enough(length, found)


# --- the optimiser


def _part(objective: Objective, parts: int) -> tuple[Objective, Scalar]:
    """The criterion on this update's part of the batch, and what its loss is multiplied by to stand for all of it.

    Parts go round the slots in use, so that none is empty where the last batch of an epoch is short.
    """
    slots = objective.batch.weights.shape[0]
    size = -(-slots // parts)
    used = jnp.maximum(jnp.sum(objective.batch.present).astype(jnp.int32), 1)
    part = objective.slots(((objective.update % parts) * size + jnp.arange(size)) % used)
    weight = jnp.sum(part.batch.weights) / size
    whole = jnp.sum(objective.batch.weights) / slots
    return part, jnp.where(weight > 0, whole / jnp.where(weight > 0, weight, 1.0), 0.0)


def _stands_alone(objective: Objective, parameters: PyTree) -> bool:
    """Whether each example has a gradient of its own: not for a loss of whole batches, nor with batch statistics."""
    try:
        objective.check_alone(parameters, "")
    except RequestError:
        return False
    return True


def _asks_for_all_bits(precision: str) -> bool:
    """Whether products must be told to keep 32 bits; on a CPU they always do."""
    return precision == "highest" and jax.default_backend() != "cpu"


class _State(NamedTuple):
    solution: PyTree  # where the last solve ended
    damping: Scalar  # lambda of the next update
    ratio: Scalar  # rho of the last
    length: Scalar  # the share of its step that was taken; 0 where no lower point was found
    cg_steps: Int[Array, ""]
    search: line_search_state.LineSearch


class HessianFree(AbstractOptimiser):
    """Newton steps (G + lambda I) p = -g without the matrix, after Martens (2010), with his constants.

    G is the Gauss-Newton matrix J'HJ, J the outputs' Jacobian and H the loss's Hessian in the outputs, plus the
    penalty's Hessian. With `curvature="hessian"` it is the criterion's own Hessian: any differentiable criterion has
    one, but it may have negative curvature, where a solve ends early; G never has, for a loss that is convex in the
    outputs. Systems are preconditioned by (s + lambda)^exponent with s the mean squared gradient of the part's
    examples; where an example has no gradient of its own (a plain `loss(model, batch, key)`, batch normalisation), by
    the squared gradient of the batch. `exponent=0` needs no such gradients: for convolutions, whose per-example
    gradients take room.

    Candidates, line search and rho use the criterion on the whole batch, whose gradient is g: then no step
    goes up, and a solution that only suits its part of the batch shows as a small rho and is damped. The model in rho
    is undamped. After an update without a lower point the next solve starts from 0; after two the run has stalled.

    `precision="highest"` keeps products in 32 bits on accelerators, whose default has a mantissa of 10 bits: too
    few for the small differences that rho and the line search compare, and for long solves. Gradient and criterion are
    then recomputed in 32 bits.
    """

    needs_objective = True
    damping: float = knob(
        45.0,
        allowed="(0, inf)",
        prior=LogUniform(0.1, 1000.0),
        row="H7",
        about="the initial lambda, relative to the curvature of the mean criterion; it then adapts",
    )
    carry: float = knob(
        0.95,
        allowed="[0, 1]",
        prior=Uniform(0.5, 1.0),
        row="H7",
        about="the share of the last solution from which the next solve starts",
    )
    exponent: float = knob(
        0.75,
        allowed="[0, 1]",
        prior=Uniform(0.5, 1.0),
        row="H7",
        off=0.0,
        about="power of the preconditioner; 0 is none",
    )
    curvature_parts: int = switch(
        8,
        allowed="[1, inf)",
        prior=Choice((1, 4, 8, 20)),
        row="H7",
        kind="optimiser",
        about="the batch is split into this many pieces; each update uses the curvature of one",
    )
    cg_steps: int = switch(
        250,
        allowed="[1, inf)",
        prior=Choice((50, 100, 150, 250)),
        row="H7",
        kind="optimiser",
        about="maximal number of steps per solve",
    )
    curvature: str = switch(
        "gauss-newton", allowed=("gauss-newton", "hessian"), row="B6", kind="optimiser", about="the matrix of the model"
    )
    precision: str = switch(
        "highest",
        allowed=("highest", "default"),
        row="H7",
        kind="optimiser",
        about="matrix products in 32 bits, or the accelerator's default",
    )

    def build(self) -> optax.GradientTransformationExtraArgs:
        def init(parameters: PyTree) -> _State:
            damping = jnp.asarray(self.damping, jnp.float32)
            solution = optax.tree.zeros_like(parameters)
            one, none = jnp.ones((), jnp.float32), jnp.zeros((), jnp.int32)
            return _State(solution, damping, one, one, none, line_search_state.line_search())

        def update(gradient: PyTree, state: _State, parameters: PyTree, *, objective: Objective, **extra: Any) -> Any:
            if not _asks_for_all_bits(self.precision):
                return self._update(gradient, state, parameters, extra["value"], objective)
            with jax.default_matmul_precision("highest"):
                value, gradient = objective.value_and_gradient(parameters)
                return self._update(gradient, state, parameters, value, objective)

        return optax.GradientTransformationExtraArgs(init, update)

    def rate(self, state: PyTree) -> Scalar:
        """1 / lambda: the learning rate along directions without curvature, and the most along any."""
        return 1.0 / state.damping

    def _curved(self, objective: Objective, parameters: PyTree) -> tuple[Callable[[PyTree], PyTree], Objective]:
        """The curvature without damping as a linear map, and the part of the batch that it comes from."""
        part, share = _part(objective, self.curvature_parts)
        if self.curvature == "hessian":
            return products.hessian_map(lambda point: share * part(point), parameters), part
        name = type(self).__name__
        try:
            objective.summed(name)
        except RequestError as reason:
            raise RequestError(f'{reason} Or set its `curvature` to "hessian".') from None
        of_loss = products.gauss_newton_map(part.outputs, lambda outputs: share * part.loss_of(outputs), parameters)
        of_penalty = products.hessian_map(lambda point: objective.penalty(point, name), parameters)
        return lambda vector: optax.tree.add(of_loss(vector), of_penalty(vector)), part

    def _scale(self, part: Objective, parameters: PyTree, slope: Array, damping: Scalar) -> Array:
        """The preconditioner's diagonal."""
        if is_off(self.exponent):
            return jnp.ones_like(slope)
        if _stands_alone(part, parameters):
            squares = ravel_pytree(example_terms(part, parameters, type(self).__name__).mean_square())[0]
        else:
            squares = slope**2
        return (jnp.where(jnp.isfinite(squares), squares, 0.0) + damping) ** self.exponent

    def _update(self, gradient: PyTree, state: _State, parameters: PyTree, value: Scalar, objective: Objective) -> Any:
        here, shaped = ravel_pytree(parameters)  # one long vector: few, large operations between two products
        slope = ravel_pytree(gradient)[0]
        curved, part = self._curved(objective, parameters)

        def damped(vector: Array) -> Array:
            return ravel_pytree(curved(shaped(vector)))[0] + state.damping * vector

        def height(move: Array) -> Scalar:
            found = objective(shaped(here + move))
            return jnp.where(jnp.isfinite(found), found, jnp.inf)

        start = self.carry * ravel_pytree(state.solution)[0]
        scale = self._scale(part, parameters, slope, state.damping)
        solved = conjugate_gradients(damped, slope, start.astype(here.dtype), scale, self.cg_steps)
        place, there = _walk_back(height, solved, value)
        move = solved.iterates[place]
        expected = solved.models[place] - 0.5 * state.damping * jnp.vdot(move, move)
        length, found = _shorten(height, move, there, value, jnp.vdot(slope, move))

        ratio = jnp.where(expected < 0, (there - value) / jnp.where(expected < 0, expected, -1.0), -jnp.inf)
        poor = ~found | ~(ratio >= _POOR)
        factor = jnp.where(poor, _GROWS, jnp.where(ratio > _GOOD, _FALLS, 1.0))
        damping = jnp.clip(state.damping * factor, _LEAST_DAMPING, _MOST_DAMPING)
        new = _State(
            solution=shaped(jnp.where(found, solved.iterates[solved.last], 0.0)),
            damping=damping.astype(jnp.float32),
            ratio=ratio.astype(jnp.float32),
            length=jnp.where(found, length, 0.0).astype(jnp.float32),
            cg_steps=solved.steps,
            search=state.search.after(found),
        )
        return shaped(jnp.where(found, length * move, 0.0)), new
