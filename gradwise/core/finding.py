"""A finding: something worth knowing about a run, written for the person who must act on it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """How serious ("note", "warning" or "error"), what, the chapter's row, and what to do next."""

    level: str
    what: str
    row: str = ""
    next: str = ""
