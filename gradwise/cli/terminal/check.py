"""The summary of a check on the terminal: the verdict, the findings, what was run, and what to do next."""

from pathlib import Path

from ...records.check import Checked
from .output import console, grid, show_findings


def show_checked(record: Checked, report: Path | None) -> None:
    """Prints the verdict, the findings, what was run, and what to do next."""
    from rich.text import Text

    out = console()
    out.print(Text(record.verdict, "bold green" if record.passed else "bold red"))
    out.print()
    told = [finding for finding in record.findings if finding.what != record.verdict]  # already printed
    show_findings(out, told)
    if told:
        out.print()
    for number, remedy in enumerate(record.remedies, start=1):
        out.print(Text(f"{number}. {remedy}"))
    if record.remedies:
        out.print()
    rows = [(ran.name, ran.outcome, f"{ran.seconds:.1f} s", ran.why) for ran in record.ran]
    out.print(grid(rows, ("check", "outcome", "time", "")))
    worst = next((finding.code for finding in record.findings if finding.code and finding.level != "note"), None)
    if worst is not None:
        out.print(Text(f"explain  gradwise explain {worst}"))
    if report is not None:
        out.print(Text(f"report   {report}"), soft_wrap=True)
