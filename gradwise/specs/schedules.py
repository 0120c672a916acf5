"""The contract of schedules: a factor for each update, on a learning rate, a decay, a dropout or a smoothing.

The rules themselves are in `optimisers/first_order/schedules.py`. One whose horizon is the run's own learns it from
`over`, once, when the run begins.
"""

import abc
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree, Scalar

from .knobs import Spec, knob
from .paths import Buffer
from .priors import Uniform, ZeroOr


class AbstractSchedule(Spec):
    @abc.abstractmethod
    def init(self) -> PyTree:
        """The state before the first update."""

    @abc.abstractmethod
    def step(self, state: PyTree, update: Int[Array, ""], value: Scalar) -> tuple[PyTree, Scalar]:
        """The state and the factor for this update (counted from 0), given the training criterion on its batch."""

    def over(self, updates: int) -> "AbstractSchedule":
        """The same schedule for a run of this many updates; itself where it has a horizon of its own, or none."""
        return self

    def factor(self, update: Int[Array, ""]) -> Scalar:
        """The factor of a schedule that looks at the number of the update alone."""
        return self.step(self.init(), update, jnp.zeros(()))[1]


class Constant(AbstractSchedule):
    """The initial value throughout."""

    def init(self) -> PyTree:
        return ()

    def step(self, state: PyTree, update: Int[Array, ""], value: Scalar) -> tuple[PyTree, Scalar]:
        return (), jnp.ones(())


class Noise(Buffer):
    """How much noise a layer adds in training, such as its dropout, and how that changes over the run."""

    schedule: AbstractSchedule = Constant()


def dropout_knob(default: float, dropped: str) -> Any:
    """The dropout of a network, the same knob in all of them; `dropped` says what an update may leave out."""
    return knob(
        default,
        allowed="[0, 1)",
        prior=ZeroOr(Uniform(0.1, 0.6)),
        row="J3",
        kind="capacity",
        off=0.0,
        about=f"the probability of dropping {dropped} in an update",
    )


def with_noise_of(model: Any, update: Int[Array, ""]) -> Any:
    """The network as this update trains it: each noise times its schedule's factor."""

    def scaled(node: Any) -> Any:
        if not isinstance(node, Noise) or isinstance(node.schedule, Constant):
            return node
        return Noise(node.value * node.schedule.factor(update), node.schedule)

    return jax.tree.map(scaled, model, is_leaf=lambda node: isinstance(node, Noise))
