"""Non-linear conjugate gradient (rows C11, H7): each direction is the gradient plus a share of the last direction.

    ConjugateGradient()                                      Polak-Ribiere, on the whole training set
    ConjugateGradient(formula="hager-zhang")
    ConjugateGradient(line_steps=3, iterations=3)            three iterations on each large mini-batch

It stores one vector where L-BFGS stores twenty, but needs a more accurate line search.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree, Scalar

from ...specs.contracts import AbstractOptimiser
from ...specs.knobs import knob, switch
from ...specs.priors import Choice, LogInteger, LogUniform
from .line_search import LINE_STEPS, TOLERANCE, Method, Move, all_products, cautious_step, descent

_FORMULAS = ("polak-ribiere", "fletcher-reeves", "hager-zhang")
_LONGER = 10.0  # a search starts at most so many times further than the last one ended
_ETA = 0.01  # of Hager and Zhang's lower bound


class _Last(NamedTuple):
    """The last direction and the share of it to keep; its step, 0 if there was none, and slope times step."""

    direction: Float[Array, " n"]
    share: Scalar
    step: Scalar
    fall: Scalar


def _begin(point: Float[Array, " n"]) -> _Last:
    zero = jnp.zeros((), point.dtype)
    return _Last(jnp.zeros_like(point), zero, zero, zero)


def _forget(last: _Last) -> _Last:
    return _begin(last.direction)


def _aim(last: _Last, gradient: Float[Array, " n"]) -> tuple[Float[Array, " n"], Scalar]:
    """d = -g + beta d_before; the first trial promises the fall that the last step did (Nocedal and Wright, 3.60)."""
    direction = last.share * last.direction - gradient
    slope = jnp.vdot(gradient, direction)
    alike = jnp.minimum(last.fall / jnp.where(slope < 0, slope, -1.0), _LONGER * last.step)
    return direction, jnp.where(last.step > 0, alike, cautious_step(gradient))


def _over(numerator: Scalar, denominator: Scalar) -> Scalar:
    """The quotient; 0 where there is none."""
    sound = denominator != 0
    return jnp.where(sound, numerator / jnp.where(sound, denominator, 1.0), 0.0)


def _share(formula: str, move: Move) -> tuple[Scalar, Scalar]:
    """beta, from the gradients of one batch at both ends of the step; and how far these overlap."""
    products = all_products(move.before, move.after, move.after - move.before, move.direction)
    (old, overlap, _, _), (_, new, against, ahead), (_, _, change, curvature), (_, _, _, length) = products
    overlap = _over(jnp.abs(overlap), new)
    if formula == "fletcher-reeves":
        return _over(new, old), overlap
    if formula == "polak-ribiere":
        return jnp.maximum(_over(against, old), 0.0), overlap
    bent = against - 2.0 * _over(change, curvature) * ahead
    bound = jnp.sqrt(length) * jnp.minimum(_ETA, jnp.sqrt(old))
    return jnp.maximum(_over(bent, curvature), -_over(jnp.ones_like(bound), bound)), overlap


def _learn(formula: str, orthogonality: Any) -> Any:
    def learn(last: _Last, move: Move) -> _Last:
        share, overlap = _share(formula, move)
        share = jnp.where(overlap > orthogonality, 0.0, share)
        return _Last(move.direction, share, move.step, move.slope * move.step)

    return learn


class ConjugateGradient(AbstractOptimiser):
    """Non-linear conjugate gradient with a strong-Wolfe line search: d <- -g' + beta d, theta <- theta + t d.

    With g and g' the gradients of one batch before and after the last step, y = g' - g:

    - polak-ribiere: beta = max(0, g'.y / g.g) (Polak and Ribiere 1969; the 0 of Gilbert and Nocedal 1992)
    - fletcher-reeves: beta = g'.g' / g.g (Fletcher and Reeves 1964)
    - hager-zhang: beta = max((y - 2 d y.y / d.y).g' / d.y, -1 / (|d| min(0.01, |g|))) (Hager and Zhang 2005)

    It restarts along the gradient if d does not lead downhill, if successive gradients are far from
    orthogonal, |g.g'| > `orthogonality` g'.g' (Powell 1977, with 0.2; 1 did better on digits), or if a line search
    fails; if that fails too, the run is stalled. Powell's test replaces a restart after as many steps as there are
    parameters, which does nothing for a network and is slower in few dimensions (Rosenbrock's valley
    in four: 40 steps without, 190 with it).

    An update is `iterations` such steps on one batch of B examples. It adds B to the age, however often the line search
    evaluates the criterion; those evaluations only cost time.
    """

    needs_objective = True
    formula: str = switch(
        "polak-ribiere",
        allowed=_FORMULAS,
        prior=Choice(_FORMULAS),
        row="C11",
        kind="optimiser",
        about="the share of the last direction that is kept",
    )
    line_steps: float = knob(20.0, **LINE_STEPS)
    tolerance: float = knob(0.1, **TOLERANCE)
    orthogonality: float = knob(
        1.0,
        allowed="(0, inf)",
        prior=LogUniform(0.1, 10.0),
        row="C11",
        about="restart if successive gradients overlap by more than this share",
    )
    iterations: int = switch(
        1,
        allowed="[1, inf)",
        prior=LogInteger(1, 10),
        row="H7",
        kind="optimiser",
        about="iterations on each mini-batch before the next",
    )

    def build(self) -> optax.GradientTransformationExtraArgs:
        method = Method(_begin, _aim, _learn(self.formula, self.orthogonality), _forget)
        given = {"steps": self.line_steps, "tolerance": self.tolerance}
        return descent(method, iterations=self.iterations, often=True, **given)

    def rate(self, state: PyTree) -> Scalar:
        """The last step t that a line search found; 1 before the first."""
        return state.step
