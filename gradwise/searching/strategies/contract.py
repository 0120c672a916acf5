"""The contract of a strategy: history in, proposals out.

`ask` is pure. A strategy derives its state from the history, so a study that was killed resumes as if nothing had
happened, and two runs of one study propose the same trials.
"""

import abc
import dataclasses
from typing import ClassVar

from jaxtyping import Array, Key

from ...records.trial import Proposal, Trial
from ...specs.knobs import Spec
from ...specs.search_space import Space


@dataclasses.dataclass(frozen=True)
class History:
    """What has happened: trials that ended, proposals that are running (by number), and the next free number.

    `budget` is the number of trials that there are to be in the end, None where time decides.
    """

    trials: tuple[Trial, ...] = ()
    running: tuple[tuple[int, Proposal], ...] = ()
    next: int = 0
    budget: int | None = None


class AbstractStrategy(Spec):
    """How the next recipes are chosen. `key` belongs to the study: derive from it and from a trial's number alone."""

    # Whether trial n is one draw of the prior whatever the others showed: then the expected best of N is defined.
    independent: ClassVar[bool] = False
    # Whether the study is the same however its trials are run: then proposals depend on numbers alone.
    looks_back: ClassVar[bool] = True

    @abc.abstractmethod
    def ask(self, space: Space, history: History, count: int, *, key: Key[Array, ""]) -> list[Proposal]:
        """At most `count` proposals, for the numbers from `history.next` on.

        Fewer, or none, where the strategy must see more results first; none while nothing is running means the end.
        """

    def describe(self, space: Space, history: History) -> str:
        """What it tries in this space, in a few words, where its name does not say it."""
        return ""
