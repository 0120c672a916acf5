"""How a journey reports its progress; nobody listens by default."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..records.score_scale import ScoreScale
from ..runtime.progress import silent
from ..specs.dataset import Dataset
from ..specs.search_space import Space

if TYPE_CHECKING:
    from ..searching.storage.budget import Budget

Watch = Callable[[dict[str, Any]], None]


class AbstractProgress:
    """Hears of each phase of a journey, and of each interval or trial within it. This one does nothing with it."""

    def phase(self, text: str) -> None:
        """Starts a phase of unknown length."""

    def tell(self, text: str) -> None:
        """Adds a line that stays."""

    def training(self, prefix: str, *, length: float, scale: ScoreScale) -> None:
        """Starts a training of at most `length` examples, whose scores are on this scale."""

    def searching(self, budget: "Budget", space: Space, dataset: Dataset, prefix: str = "", metric: str = "") -> Watch:
        """Starts a search and returns what hears of its trials."""
        return silent

    def watch(self, line: dict[str, Any]) -> None:
        """Hears of an interval of the training."""


SILENT = AbstractProgress()
