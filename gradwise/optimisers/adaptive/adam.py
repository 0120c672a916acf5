"""A learning rate for each parameter from the sizes of its past gradients (rows H3, J1). All but AdamW are Optax's.

Adagrad(0.01)     g / sqrt(sum of g^2): rates only fall, fastest where gradients are large and frequent
RmsProp(0.001)    g / sqrt(moving average of g^2): rates may rise again
Adam(0.0015)      the same with the mean gradient for g, both corrected for their start at 0
AdamW(0.0015)     Adam with decoupled weight decay

The last two differ in what decay means. With Adam, a penalty in the criterion passes through the moments; AdamW
instead shrinks the weights by rate * decay at each update, whatever the size of the gradient. A note in the findings
says which of the two a recipe has.
"""

from typing import Any

import optax
from jaxtyping import PyTree, Scalar

from ...records.finding import Finding
from ...specs.contracts import AbstractOptimiser
from ...specs.knobs import is_off, knob, switch
from ...specs.paths import WEIGHTS, knobs, matching
from ...specs.priors import LogUniform, Uniform
from ...specs.schedules import AbstractSchedule, Constant
from ..first_order.schedules import present_rate, scale_by_rate

_RATE: dict[str, Any] = {
    "allowed": "(0, inf)",
    "prior": LogUniform(1e-5, 1e-1),
    "row": "C1",
    "about": "the initial learning rate: if only one knob can be tuned, tune this one",
}
_FIRST: dict[str, Any] = {
    "allowed": "[0, 1)",
    "prior": Uniform(0.0, 0.99),
    "row": "J1",
    "about": "memory of the mean gradient",
}
_SECOND: dict[str, Any] = {
    "allowed": "[0, 1)",
    "prior": Uniform(0.9, 0.9999),
    "row": "J1",
    "about": "memory of the squared gradient",
}
_EPSILON: dict[str, Any] = {
    "allowed": "(0, inf)",
    "prior": LogUniform(1e-10, 1e-3),
    "row": "J1",
    "about": "keeps the division finite",
}


def _decay_notes(optimiser: AbstractOptimiser, recipe: Any) -> tuple[Finding, ...]:
    """What the recipe's penalties on parameters (row D2) come to beside rates of each parameter's own."""
    name = type(optimiser).__name__
    return tuple(
        Finding(
            "note",
            f"`{path}={float(value):g}` is a penalty in the criterion: {name} divides its gradient, like that of the "
            "loss, by the size of past gradients, so weights with large gradients decay less than the chapter's "
            "lambda says. It is not AdamW's decoupled decay.",
            row="J1",
            next="for the chapter's meaning use Sgd; for decoupled decay use AdamW and a coefficient of 0.",
        )
        for path, declaration, value in knobs(recipe)
        if declaration.row == "D2" and path.endswith(".coefficient") and not is_off(value)
    )


class Adagrad(AbstractOptimiser):
    """theta <- theta - rate g / sqrt(s + epsilon), s <- s + g^2 from s = initial_square (Duchi et al. 2011).

    Parameters of rare inputs keep large rates. A parameter whose gradients were all 0 does not move.
    """

    learning_rate: float = knob(0.01, **{**_RATE, "prior": LogUniform(1e-4, 1.0)})
    initial_square: float = knob(
        0.1,
        allowed="[0, inf)",
        prior=LogUniform(1e-6, 1.0),
        row="H3",
        about="initial value of the sum of squares: larger means smaller first steps",
    )
    epsilon: float = knob(1e-7, **{**_EPSILON, "row": "H3"})
    schedule: AbstractSchedule = Constant()

    def build(self) -> optax.GradientTransformationExtraArgs:
        return optax.chain(
            optax.scale_by_rss(self.initial_square, self.epsilon),
            scale_by_rate(self.learning_rate, self.schedule),
        )

    def acts_elementwise(self) -> bool:
        return True

    def rests_without_gradient(self) -> bool:
        return True

    def rate(self, state: PyTree) -> Scalar:
        return present_rate(state)

    def findings_in(self, recipe: Any) -> tuple[Finding, ...]:
        return _decay_notes(self, recipe)


class RmsProp(AbstractOptimiser):
    """theta <- theta - rate g / sqrt(v + epsilon), v <- b v + (1 - b) g^2 from v = 0 (Tieleman and Hinton 2012).

    With v from 0 and uncorrected, the first steps are 1 / sqrt(1 - b) times the rate.
    """

    learning_rate: float = knob(0.001, **_RATE)
    second_moment: float = knob(0.9, **{**_SECOND, "prior": Uniform(0.9, 0.999)})
    epsilon: float = knob(1e-8, **_EPSILON)
    schedule: AbstractSchedule = Constant()

    def build(self) -> optax.GradientTransformationExtraArgs:
        return optax.chain(
            optax.scale_by_rms(self.second_moment, self.epsilon),
            scale_by_rate(self.learning_rate, self.schedule),
        )

    def acts_elementwise(self) -> bool:
        return True

    def rate(self, state: PyTree) -> Scalar:
        return present_rate(state)

    def findings_in(self, recipe: Any) -> tuple[Finding, ...]:
        return _decay_notes(self, recipe)


class Adam(AbstractOptimiser):
    """Steps of about the learning rate in each parameter, whatever the gradient's scale."""

    learning_rate: float = knob(0.0015, **_RATE)
    first_moment: float = knob(0.9, **_FIRST)
    second_moment: float = knob(0.999, **_SECOND)
    epsilon: float = knob(1e-8, **_EPSILON)
    schedule: AbstractSchedule = Constant()

    def build(self) -> optax.GradientTransformationExtraArgs:
        return optax.chain(
            optax.scale_by_adam(self.first_moment, self.second_moment, self.epsilon),
            scale_by_rate(self.learning_rate, self.schedule),
        )

    def acts_elementwise(self) -> bool:
        return True

    def rate(self, state: PyTree) -> Scalar:
        return present_rate(state)

    def findings_in(self, recipe: Any) -> tuple[Finding, ...]:
        return _decay_notes(self, recipe)


class AdamW(AbstractOptimiser):
    """Adam with decoupled weight decay."""

    learning_rate: float = knob(0.0015, **_RATE)
    decay: float = knob(
        0.01,
        allowed="[0, inf)",
        prior=LogUniform(1e-4, 1.0),
        row="J1",
        kind="capacity",
        off=0.0,
        about="shrinks the weights by rate * decay at each update",
    )
    where: str = switch(WEIGHTS, row="C10", kind="model", about="which parameters decay, by path")
    first_moment: float = knob(0.9, **_FIRST)
    second_moment: float = knob(0.999, **_SECOND)
    epsilon: float = knob(1e-8, **_EPSILON)
    schedule: AbstractSchedule = Constant()
    decay_schedule: AbstractSchedule = Constant()

    def build(self) -> optax.GradientTransformationExtraArgs:
        adam = optax.scale_by_adam(self.first_moment, self.second_moment, self.epsilon)
        return optax.chain(adam, self._shrink(), scale_by_rate(self.learning_rate, self.schedule))

    def _shrink(self) -> optax.GradientTransformation:
        if is_off(self.decay):
            return optax.identity()
        decay: Any = self.decay
        if not isinstance(self.decay_schedule, Constant):
            decay = lambda update: self.decay * self.decay_schedule.factor(update)  # noqa: E731
        return optax.add_decayed_weights(decay, mask=lambda parameters: matching(parameters, self.where))

    def acts_elementwise(self) -> bool:
        return True

    def rate(self, state: PyTree) -> Scalar:
        return present_rate(state)

    def findings_in(self, recipe: Any) -> tuple[Finding, ...]:
        return _decay_notes(self, recipe)

    def findings(self) -> tuple[Finding, ...]:
        # A decay that is let go over the run is nobody's lambda.
        if is_off(self.decay) or not isinstance(self.decay_schedule, Constant):
            return ()
        return (
            Finding(
                "note",
                f"`decay={float(self.decay):g}` is AdamW's: each update shrinks the weights by rate x decay. "
                "It is not the chapter's lambda beside the summed loss.",
                row="J1",
                next="for the chapter's meaning use an L2 penalty with Sgd.",
            ),
        )
