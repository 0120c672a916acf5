"""Knobs per layer and per kind of parameter (row C10): an optimiser of its own for each group of paths.

    Grouped(Sgd(0.01), groups=(Group("layers.0.*", Sgd(0.1)), Group("*.bias", Sgd(0.02))))

The first group whose pattern matches a parameter's path takes it; the rest go to the base optimiser.
"""

import optax
from jaxtyping import PyTree, Scalar

from ..core.errors import RequestError
from ..core.knob import Spec, switch
from ..core.parts import AbstractOptimiser
from ..core.tree import map_named, matching, named_leaves


class Group(Spec):
    """Parameters by path, and their optimiser."""

    where: str = switch("*.bias", row="C10", kind="optimiser", about="which parameters, by path")
    optimiser: AbstractOptimiser

    def __init__(self, where: str, optimiser: AbstractOptimiser):
        self.where = where
        self.optimiser = optimiser


class Grouped(AbstractOptimiser):
    """A base optimiser, and others for some of the parameters."""

    base: AbstractOptimiser
    groups: tuple[Group, ...] = ()

    def _labels(self, parameters: PyTree) -> PyTree:
        names = [name for name, _ in named_leaves(parameters)]
        taken: dict[str, str] = {}
        for number, group in enumerate(self.groups):
            hits = [name for name, hit in named_leaves(matching(parameters, group.where)) if hit]
            if not hits:
                raise RequestError(
                    f"no parameter matches the group `{group.where}`. The paths are: {', '.join(names[:8])}, ..."
                )
            for name in hits:
                taken.setdefault(name, str(number))
        return map_named(lambda name, _: taken.get(name, "base"), parameters)

    def build(self) -> optax.GradientTransformationExtraArgs:
        inner = {"base": self.base.build()}
        inner.update({str(number): group.optimiser.build() for number, group in enumerate(self.groups)})
        return optax.with_extra_args_support(optax.multi_transform(inner, self._labels))

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        return parameters

    def rate(self, state: PyTree) -> Scalar:
        return self.base.rate(state.inner_states["base"])
