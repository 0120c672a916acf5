"""Knobs per layer and per kind of parameter (row C10): a separate optimiser for each group of paths.

    Grouped(Sgd(0.01), groups=(ParameterGroup("layers.0.*", Sgd(0.1)), ParameterGroup("*.bias", Sgd(0.02))))

A parameter belongs to the first group whose pattern matches its path; the rest use the base optimiser. From the shell a
group is written by its number, and starts as a copy of the base optimiser:

    --set optimiser=Grouped --set optimiser.groups.0.where=layers.0.* --set optimiser.groups.0.learning_rate=0.1
"""

from typing import Any

import jax
import optax
from jaxtyping import PyTree, Scalar

from ...runtime.errors import RequestError
from ...specs.contracts import AbstractOptimiser
from ...specs.knobs import Spec, switch
from ...specs.paths import map_named, matching, named_leaves, parts
from ..first_order.frozen import Frozen

_MASKED = optax.MaskedNode()


class ParameterGroup(Spec):
    """Parameters by path, and their optimiser."""

    optimiser: AbstractOptimiser
    where: str = switch("*.bias", row="C10", kind="optimiser", about="which parameters, by path")

    def __init__(self, where: str, optimiser: AbstractOptimiser):
        self.where = where
        self.optimiser = optimiser


class Grouped(AbstractOptimiser):
    """A base optimiser, and others for some groups of parameters."""

    base: AbstractOptimiser
    groups: tuple[ParameterGroup, ...] = ()

    def __check_init__(self) -> None:
        for path, part in parts(self):
            if isinstance(part, AbstractOptimiser) and part.needs_objective:
                raise RequestError(
                    f"`Grouped.{path}` is {type(part).__name__}, which works on all parameters at once: "
                    "it cannot have a group of its own. Use it alone."
                )

    def _labels(self, parameters: PyTree) -> PyTree:
        names = [name for name, _ in named_leaves(parameters)]
        taken: dict[str, str] = {}
        for number, group in enumerate(self.groups):
            hits = [name for name, hit in named_leaves(matching(parameters, group.where)) if hit]
            if not hits:
                more = ", ..." if len(names) > 8 else ""
                raise RequestError(
                    f"no parameter matches the group `{group.where}`. The paths are: {', '.join(names[:8])}{more}."
                )
            earlier = {taken.get(name) for name in hits}
            still = {str(place) for place, one in enumerate(self.groups) if isinstance(one.optimiser, Frozen)}
            if None not in earlier and not earlier <= still:  # what is held still may cover a whole group for a while
                raise RequestError(
                    f"the group `{group.where}` gets no parameter: earlier groups took {', '.join(hits[:8])}. "
                    "Put it before them, or leave it out."
                )
            for name in hits:
                taken.setdefault(name, str(number))
        return map_named(lambda name, _: taken.get(name, "base"), parameters)

    def _optimisers(self) -> dict[str, AbstractOptimiser]:
        """Each label's optimiser."""
        return {"base": self.base, **{str(number): group.optimiser for number, group in enumerate(self.groups)}}

    def build(self) -> optax.GradientTransformationExtraArgs:
        inner = {label: optimiser.build() for label, optimiser in self._optimisers().items()}
        return optax.with_extra_args_support(optax.multi_transform(inner, self._labels))

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        # Each optimiser judges its own parameters (it may average them), the others standing masked as in `update`.
        labels = self._labels(parameters)
        judged: dict[str, PyTree] = {}
        for label, optimiser in self._optimisers().items():
            own = jax.tree.map(lambda mark, leaf, me=label: leaf if mark == me else _MASKED, labels, parameters)
            judged[label] = optimiser.judged(own, state.inner_states[label].inner_state)

        def choose(mark: str, *candidates: Any) -> Any:
            return dict(zip(judged, candidates, strict=True))[mark]

        return jax.tree.map(choose, labels, *judged.values())

    def rate(self, state: PyTree) -> Scalar:
        """The base optimiser's."""
        return self.base.rate(state.inner_states["base"].inner_state)
