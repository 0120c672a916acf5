"""Adam and AdamW (row J1): a learning rate for each parameter from running moments of its gradient.

The two differ in what decay means. Beside Adam a penalty in the criterion passes through the moments; AdamW instead
shrinks the weights by rate * decay at each update, whatever the gradient's size.
"""

from typing import Any

import optax
from jaxtyping import PyTree, Scalar

from ..core.finding import Finding
from ..core.knob import is_off, knob, switch
from ..core.parts import AbstractOptimiser
from ..core.prior import LogUniform, Uniform
from ..core.tree import matching
from .schedule import AbstractSchedule, Constant, present_rate, scale_by_rate

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

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        return parameters

    def rate(self, state: PyTree) -> Scalar:
        return present_rate(state)


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
    where: str = switch("*.weight", row="C10", kind="model", about="which parameters decay, by path")
    first_moment: float = knob(0.9, **_FIRST)
    second_moment: float = knob(0.999, **_SECOND)
    epsilon: float = knob(1e-8, **_EPSILON)
    schedule: AbstractSchedule = Constant()

    def build(self) -> optax.GradientTransformationExtraArgs:
        adam = optax.scale_by_adam(self.first_moment, self.second_moment, self.epsilon)
        shrink = (
            optax.identity()
            if is_off(self.decay)
            else optax.add_decayed_weights(self.decay, mask=lambda parameters: matching(parameters, self.where))
        )
        return optax.chain(adam, shrink, scale_by_rate(self.learning_rate, self.schedule))

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        return parameters

    def rate(self, state: PyTree) -> Scalar:
        return present_rate(state)

    def findings(self) -> tuple[Finding, ...]:
        if is_off(self.decay):
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
