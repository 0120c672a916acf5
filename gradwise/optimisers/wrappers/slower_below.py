"""Lower layers that move more slowly than the others, or not at all (rows A9, C10): they keep what they know.

    MovingAverage(SlowerBelow(Adam(), layers=2, frozen=1))      the first layer is held, the second has 0.1 of the rate

What comes before the first layer (embeddings of columns, factors of inputs) goes with it. Layers of filters come first,
then the dense layers above them. A decay inside the optimiser is multiplied together with its step. Averages of
parameters go around it, since they must see the steps really taken.
"""

import re
from typing import Any

import jax.numpy as jnp
import optax
from jaxtyping import PyTree, Scalar

from ...runtime.errors import RequestError
from ...specs.contracts import AbstractOptimiser
from ...specs.knobs import knob, switch
from ...specs.paths import map_named, named_leaves, parts, replace
from ...specs.priors import LogUniform
from ..averaging.parameter_average import MovingAverage, PolyakAverage, TailAverage, refuse_averages

_LAYER = re.compile(r"(layers|convolutions)\.(\d+)\.")


def depth_of(name: str, filters: int = 0) -> int | None:
    """The hidden layer that a parameter belongs to, from 0; None above the last. Dense ones lie above the `filters`."""
    found = _LAYER.match(name)
    if found is None:
        return 0 if name.startswith("inputs.") else None
    return int(found[2]) + (filters if found[1] == "layers" else 0)


def count_filter_layers(tree: PyTree) -> int:
    """How many layers of filters a network with these parameters has."""
    found = (_LAYER.match(name) for name, _ in named_leaves(tree))
    return max((int(one[2]) + 1 for one in found if one is not None and one[1] == "convolutions"), default=0)


class SlowerBelow(AbstractOptimiser):
    """Multiplies the updates of the lowest layers by a factor, those of frozen ones by 0."""

    optimiser: AbstractOptimiser
    layers: int = switch(1, allowed="[0, inf)", row="A9", kind="optimiser", about="how many layers are slower")
    frozen: int = switch(0, allowed="[0, inf)", row="A9", kind="optimiser", about="how many of them are held still")
    factor: float = knob(
        0.1,
        allowed="[0, 1]",
        prior=LogUniform(0.01, 1.0),
        row="A9",
        about="the learning rate of slower layers, as a share of that of the others",
    )

    def __check_init__(self) -> None:
        refuse_averages(self)
        for _, part in parts(self):
            if isinstance(part, AbstractOptimiser) and part.needs_objective:
                raise RequestError(
                    f"`SlowerBelow` cannot slow {type(part).__name__}, which moves all parameters at once. Use Adam or "
                    "Sgd."
                )

    def _of(self, name: str, filters: int) -> Any:
        """What the update of the parameter at this path is multiplied by."""
        depth = depth_of(name, filters)
        if depth is None or depth >= max(self.layers, self.frozen):
            return 1.0
        return 0.0 if depth < self.frozen else self.factor

    def build(self) -> optax.GradientTransformationExtraArgs:
        inner = self.optimiser.build()

        def update(updates: PyTree, state: PyTree, parameters: PyTree = None, **extra: Any) -> Any:
            filters = count_filter_layers(updates)

            def is_held(name: str) -> bool:
                depth = depth_of(name, filters)
                return depth is not None and depth < self.frozen

            # Without a gradient to wait for, the compiler leaves the backward pass through frozen layers out.
            asked = map_named(lambda name, g: jnp.zeros_like(g) if is_held(name) else g, updates)
            moved, state = inner.update(asked, state, parameters, **extra)
            return map_named(
                lambda name, m: jnp.zeros_like(m) if is_held(name) else self._of(name, filters) * m, moved
            ), state

        return optax.GradientTransformationExtraArgs(inner.init, update)

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        return self.optimiser.judged(parameters, state)

    def rate(self, state: PyTree) -> Scalar:
        """The rate of the layers that are not slower."""
        return self.optimiser.rate(state)


def within_averages(optimiser: AbstractOptimiser, **given: Any) -> AbstractOptimiser:
    """The optimiser with its lower layers slower, whatever averages its parameters."""
    if isinstance(optimiser, PolyakAverage | MovingAverage | TailAverage):
        return replace(optimiser, "optimiser", within_averages(optimiser.optimiser, **given))
    return SlowerBelow(optimiser, **given)


def all_alike(optimiser: AbstractOptimiser) -> AbstractOptimiser:
    """The optimiser as it was before `within_averages`."""
    if isinstance(optimiser, PolyakAverage | MovingAverage | TailAverage):
        return replace(optimiser, "optimiser", all_alike(optimiser.optimiser))
    return optimiser.optimiser if isinstance(optimiser, SlowerBelow) else optimiser
