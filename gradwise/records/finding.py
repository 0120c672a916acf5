"""A finding: something to know about a run, and what to do about it.

A finding of a check has a code, and each code a page: `gradwise explain GW101`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

LEVELS = ("error", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """The level ("note", "warning" or "error"), the text, the chapter's row, and what to do next.

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
            raise ValueError(f"unknown level {self.level!r} of a finding; choose from {', '.join(LEVELS)}.")


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors, then warnings, then notes; those of a level keep their order."""
    return tuple(sorted(findings, key=lambda finding: LEVELS.index(finding.level)))
