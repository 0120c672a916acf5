"""The criterion in the form that is cheapest for a line search (rows C11, H7).

    line = line_of(objective, restored, often=False)(point, direction)
    value, slope, kept = line.look(0.5)         half a step along the direction
    line.gradient(kept, 0.5)                    the whole gradient there

A search needs only the criterion and its gradient, on one large batch:

- The losses are computed with the examples along the last axis, (k, B) and not (B, k). On a CPU the compiler makes
  vector instructions of the last axis, and of one output it can make none: on 10000 examples of 100 inputs criterion
  and gradient took 348 microseconds one way and 247 the other.
- Where the outputs are linear in the parameters they are known along the whole line from two products with the data,
  and a third gives the gradient where the search ends. A look in between costs no product, otherwise each costs two. So
  this is done for methods whose searches look about twice or more (`often`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Scalar

from ...curvature.example_gradients import is_linear
from ...curvature.objective import Objective
from ...runtime.errors import RequestError

_NAME = "a line search"
_FEW = 16  # outputs up to which the examples go last; with 100 of them it was measured to cost


class Line(NamedTuple):
    """The criterion along a direction: value, slope and what the gradient is made from, then the gradient itself."""

    look: Callable[[Scalar], tuple[Scalar, Scalar, Array]]
    gradient: Callable[[Array, Scalar], Float[Array, " n"]]


def _is_straight(objective: Objective, parameters: PyTree) -> bool:
    """Whether each example's outputs are linear in the parameters, without noise, and none looks at the others."""
    if objective.criterion.not_summed():
        return False
    try:
        objective.check_alone(parameters, _NAME)
    except RequestError:
        return False
    return is_linear(objective, parameters)


def _examples_last(array: Array) -> Array:
    return jnp.moveaxis(array, 0, -1)


def criterion_of(objective: Objective) -> Callable[[PyTree], Scalar]:
    """The objective as a function of the parameters, its losses computed along the examples."""
    if objective.criterion.not_summed():
        return objective
    of_output, batch = objective.summed(_NAME).of_output, objective.batch

    def value(parameters: PyTree) -> Scalar:
        outputs = objective.outputs(parameters)
        if outputs.ndim != 2 or outputs.shape[1] > _FEW:
            return objective(parameters)
        losses = jax.vmap(of_output, in_axes=-1)(_examples_last(outputs), _examples_last(batch.targets))
        return jnp.sum(batch.weights * losses) / batch.weights.shape[0] + objective.penalty(parameters)

    return value


def _straight(objective: Objective, restored: Callable[[Array], PyTree], point: Array, direction: Array) -> Line:
    """Along outputs that are linear in the parameters; kept are the slopes of the criterion in the outputs."""
    batch, targets = objective.batch, _examples_last(objective.batch.targets)
    losses_and_slopes = jax.vmap(jax.value_and_grad(objective.summed(_NAME).of_output), -1, (0, -1))

    def outputs(vector: Array) -> Array:
        return _examples_last(objective.outputs(restored(vector)))

    def penalty(vector: Array) -> Scalar:
        return objective.penalty(restored(vector))

    start, along = jax.jvp(outputs, (point,), (direction,))

    def look(step: Scalar) -> tuple[Scalar, Scalar, Array]:
        losses, slopes = losses_and_slopes(start + step * along, targets)
        weighted = batch.weights * slopes / batch.weights.shape[0]
        more, tilt = jax.jvp(penalty, (point + step * direction,), (direction,))
        value = jnp.sum(batch.weights * losses) / batch.weights.shape[0] + more
        return value, jnp.sum(weighted * along) + tilt, weighted

    def gradient(weighted: Array, step: Scalar) -> Array:
        back = jax.vjp(outputs, point)[1](weighted)[0]
        return back + jax.grad(penalty)(point + step * direction)

    return Line(look, gradient)


def line_of(
    objective: Objective, restored: Callable[[Array], PyTree], parameters: PyTree, *, often: bool
) -> Callable[[Array, Array], Line]:
    """Lines through points in the space of all parameters; `restored` turns such a vector into the network's form."""
    if often and _is_straight(objective, parameters):
        return lambda point, direction: _straight(objective, restored, point, direction)
    height = criterion_of(objective)
    both = jax.value_and_grad(lambda vector: height(restored(vector)))

    def line(point: Array, direction: Array) -> Line:
        def look(step: Scalar) -> tuple[Scalar, Scalar, Array]:
            value, gradient = both(point + step * direction)
            return value, jnp.vdot(gradient, direction), gradient

        def kept(gradient: Array, _: Any) -> Array:
            return gradient

        return Line(look, kept)

    return line
