"""What `check` returns: the checks that were run, the findings, and what to do next. A record, written as JSON."""

import dataclasses
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..runtime.errors import RequestError
from ..runtime.files import write_whole
from .evidence.check_evidence import CheckedEvidence
from .finding import Finding, worst_first
from .plain_values import from_values, to_values

FILE = "check.json"


@dataclasses.dataclass(frozen=True)
class Ran:
    """One check that was run, or was not and why.

    `outcome` is "passed" or "found"; "skipped" if it does not apply; "not run" if it failed.
    """

    name: str
    outcome: str
    seconds: float = 0.0
    why: str = ""


@dataclasses.dataclass(frozen=True, repr=False)
class Checked:
    """The verdict in one sentence, the findings worst first, the remedies in order, and the numbers behind them.

    `evidence` holds the numbers that the figures of each check show.
    """

    subject: str
    verdict: str
    findings: tuple[Finding, ...]
    remedies: tuple[str, ...]
    ran: tuple[Ran, ...]
    evidence: CheckedEvidence
    seconds: float
    seed: int
    version: str
    machine: dict[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "findings", worst_first(self.findings))

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level == "error")

    @property
    def passed(self) -> bool:
        """Whether no error was found."""
        return not self.errors

    def coded(self, code: str) -> tuple[Finding, ...]:
        """The findings with this code."""
        return tuple(finding for finding in self.findings if finding.code == code)

    def summary(self) -> dict[str, Any]:
        """The record as JSON values: the content of `check.json`, and what `--json` prints."""
        told = {"findings": [asdict(finding) for finding in self.findings], "ran": [asdict(one) for one in self.ran]}
        return {**to_values(self), **to_values(told), "passed": self.passed}

    def __repr__(self) -> str:
        return (
            f"Checked({self.subject!r}, passed={self.passed}, {len(self.findings)} findings, verdict={self.verdict!r})"
        )

    def __str__(self) -> str:
        lines = [self.verdict]
        for finding in self.findings:
            where = f" [{finding.where}]" if finding.where else ""
            lines.append(f"{finding.level} {finding.code}{where}: {finding.what}")
            lines += [f"    next: {finding.next}"] if finding.next else []
        return "\n".join(lines)


def write_checked(record: Checked, folder: Path) -> None:
    """Writes `check.json`."""
    write_whole(folder / FILE, json.dumps(record.summary(), indent=2).encode())


def read_checked(folder: Path) -> Checked:
    """The record in the folder of a check."""
    path = Path(folder) / FILE
    if not path.is_file():
        raise RequestError(f"{folder} is not the folder of a check: it has no {FILE}.")
    try:
        plain = json.loads(path.read_text())
        plain.pop("passed", None)
        return from_values(Checked, plain)
    except (OSError, ValueError, AttributeError) as problem:
        raise RequestError(f"{path} is damaged: {type(problem).__name__}: {problem}.") from None
