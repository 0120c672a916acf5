"""A finding: something worth knowing about a run, written for the person who must act on it.

Where it comes from a check it has a code, and the code a page: `gradwise explain GW101`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

LEVELS = ("error", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """How serious ("note", "warning" or "error"), what, the chapter's row, and what to do next.

    `where` is the place: a parameter (`layers.0.weight`), a layer, a column, a line of the user's own code. `evidence`
    holds the numbers it rests on, plain JSON values.
    """

    level: str
    what: str
    row: str = ""
    next: str = ""
    code: str = ""
    where: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise ValueError(f"a finding's level is one of {', '.join(LEVELS)}; got {self.level!r}.")


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors, then warnings, then notes; those of a level keep their order."""
    return tuple(sorted(findings, key=lambda finding: LEVELS.index(finding.level)))
