"""Weight decay by the number of updates that a parameter really gets (row D3), for sparse inputs and targets.

    EffectiveDecay(Sgd(0.1), coefficient=1.0, where="layers.0.weight")                  like a prior
    EffectiveDecay(Sgd(0.1), coefficient=1.0, where="*.weight", reading="every")        stronger for rare inputs

The weights of an input that is 0 in most examples have a gradient of exactly 0 in most updates, which then carry no
information about them. The chapter divides lambda by the number n of updates that do. It does not say when the result
is applied, which makes all the difference, so both readings are available:

| reading | applied | over an epoch of N updates a parameter gets |
|---|---|---|
| "active" | lambda/n on its n active updates | lambda, rare or not: the prior as it is |
| "every" | lambda/n on all N updates | lambda N/n: rare parameters are held closer to 0 |

With every parameter active in every update both are the plain L2 penalty.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree, Scalar

from ...runtime.errors import RequestError
from ...specs.contracts import AbstractOptimiser
from ...specs.knobs import declarations, is_off, knob, switch
from ...specs.paths import WEIGHTS, matching, parts
from ...specs.priors import Choice, LogUniform, ZeroOr
from .proximal import Proximal, marked, prior_share


class _EffectiveState(NamedTuple):
    inner: PyTree
    # By parameter. "active": the prior's shares since its last active update; "every": the fraction of active updates.
    known: PyTree
    update: Int[Array, ""]


class EffectiveDecay(AbstractOptimiser):
    """Adds 2 lambda w theta to an optimiser's gradient, with a weight w for each parameter (Bengio 2012).

    With the share s = (1/B)(B'/T) of one update, as in the criterion, and a parameter active where |g| > negligible:

        "active":   w = the sum of s over the updates since the last active one, this one included; 0 where not active
        "every":    w = s / f,  f = active updates / updates so far, at least 1 / updates so far and at least B / T

    In the first the shares of n active updates in an epoch sum up to exactly 1/B, as in the criterion, with no n to
    estimate. In the second, B / T is one update per epoch, the lowest activity assumed of a parameter.

    Activity is read from the gradient, so a penalty of the criterion on the same parameters is an error: it would make
    all of them always active. The added gradient passes through the inner optimiser like that of a penalty.
    It is never larger than what would bring the parameter to 0 in one plain step at the current rate.
    """

    needs_objective = True
    reads_examples = False
    optimiser: AbstractOptimiser
    coefficient: float = knob(
        0.1,
        allowed="[0, inf)",
        prior=ZeroOr(LogUniform(1e-4, 100.0)),
        row="D3",
        kind="capacity",
        off=0.0,
        about="lambda of L2 relative to the summed loss",
    )
    where: str = switch(WEIGHTS, row="D3", kind="model", about="which parameters, by path")
    reading: str = switch(
        "active",
        allowed=("active", "every"),
        prior=Choice(("active", "every")),
        row="D3",
        kind="model",
        about="whether lambda over the number of active updates is applied on those only, or on every update",
    )
    negligible: float = knob(
        0.0,
        allowed="[0, inf)",
        prior=ZeroOr(LogUniform(1e-8, 1e-2)),
        row="D3",
        kind="model",
        off=0.0,
        about="gradients up to this size count as 0: for rare targets, whose gradients are small but not 0",
    )

    def __check_init__(self) -> None:
        for _, part in parts(self):
            asks = isinstance(part, AbstractOptimiser) and part.needs_objective
            if asks and not isinstance(part, (Proximal, EffectiveDecay)):
                kind = type(part).__name__
                raise RequestError(
                    f"`EffectiveDecay` around `{kind}`, which may take gradients of its own, would be passed over. "
                    f"Put it inside, where {kind} wraps an optimiser, or use another one."
                )

    def _refuse_other_decay(self, criterion: Any, marks: PyTree, parameters: PyTree) -> None:
        """Another penalty on the same parameters would make all of them active always."""
        others = [part for _, part in (*parts(criterion), *parts(self.optimiser))] + [self.optimiser]
        for part in others:
            if isinstance(part, Proximal) or not {"coefficient", "where"} <= dict(declarations(part)).keys():
                continue  # a proximal step never enters the gradient
            shared = jax.tree.map(lambda mine, other: mine and other, marks, matching(parameters, part.where))
            if not is_off(part.coefficient) and any(jax.tree.leaves(shared)):
                raise RequestError(
                    "`EffectiveDecay` tells active parameters by their gradients, which "
                    f"{type(part).__name__}(where={part.where!r}) makes other than 0 in every update. "
                    "Set its coefficient to 0, or let the two have different parameters."
                )

    def _weights(self, known: Array, gradient: Array, share: Scalar, least: Scalar, count: Array) -> tuple[Any, Any]:
        """What of the prior each element gets in this update, and what is known of it after."""
        active = jnp.abs(gradient) > self.negligible
        if self.reading == "active":
            waiting = known + share
            return jnp.where(active, waiting, 0.0), jnp.where(active, 0.0, waiting)
        fraction = known + (active - known) / count
        return share / jnp.maximum(fraction, jnp.maximum(1.0 / count, least)), fraction

    def build(self) -> optax.GradientTransformationExtraArgs:
        inner = self.optimiser.build()

        def init(parameters: PyTree) -> _EffectiveState:
            marks = matching(parameters, self.where)
            known = jax.tree.map(lambda mark, p: jnp.zeros(p.shape if mark else ()), marks, parameters)
            return _EffectiveState(inner.init(parameters), known, jnp.zeros((), jnp.int32))

        def update(updates: PyTree, state: Any, parameters: PyTree = None, *, objective: Any, **extra: Any) -> Any:
            count = state.update + 1
            marks = marked(parameters, self.where, "EffectiveDecay")
            self._refuse_other_decay(objective.criterion, marks, parameters)
            share = prior_share(objective.batch)
            least = objective.batch.present.shape[0] / objective.batch.total
            most = 1.0 / self.optimiser.rate(state.inner)

            def decayed(mark: bool, p: Array, g: Array, known: Array) -> tuple[Array, Array]:
                if not mark:
                    return g, known
                weight, after = self._weights(known, g, share, least, count)
                return g + jnp.minimum(2.0 * self.coefficient * weight, most) * p, after

            pairs = jax.tree.map(decayed, marks, parameters, updates, state.known)
            gradient, known = (jax.tree.map(lambda _, pair, n=n: pair[n], marks, pairs) for n in range(2))
            moved, inner_state = inner.update(gradient, state.inner, parameters, objective=objective, **extra)
            return moved, _EffectiveState(inner_state, known, count)

        if is_off(self.coefficient):
            return inner
        return optax.GradientTransformationExtraArgs(init, update)

    def _inner_state(self, state: PyTree) -> PyTree:
        return state if is_off(self.coefficient) else state.inner

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        return self.optimiser.judged(parameters, self._inner_state(state))

    def rate(self, state: PyTree) -> Scalar:
        return self.optimiser.rate(self._inner_state(state))
