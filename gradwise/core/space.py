"""The search space is read off a recipe: every knob and switch that has a prior, under its path.

>>> [d.path for d in read_space(recipe) if d.row == "C1"]
['optimiser.learning_rate']
"""

from dataclasses import dataclass
from typing import Any

from .knob import Declaration
from .tree import knobs


@dataclass(frozen=True)
class Dimension:
    """One axis of the space."""

    path: str
    declaration: Declaration
    value: Any

    @property
    def row(self) -> str:
        return self.declaration.row

    def at(self, fraction: float) -> Any:
        """The value at this fraction of the prior."""
        assert self.declaration.prior is not None
        return self.declaration.prior.quantile(fraction)


def read_space(recipe: Any) -> tuple[Dimension, ...]:
    """The dimensions of a recipe, in the order of its fields."""
    return tuple(
        Dimension(path, declaration, value)
        for path, declaration, value in knobs(recipe)
        if declaration.prior is not None
    )
