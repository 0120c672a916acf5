"""Output to the terminal: a short summary at the end of a run.

Results go to standard output, remarks to standard error. Text from the user's data (names of files, columns and
classes) is never interpreted as markup and never moves the cursor.
"""

import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...evaluation.metrics import shown_metrics
from ...records.evidence.fit_evidence import PretrainedLayer
from ...records.finding import Finding
from ...records.fit import Fit
from ...records.study import Study
from ...reporting import wording


def say(text: str) -> None:
    """Prints a remark to standard error."""
    print(wording.clean(text), file=sys.stderr)


def console() -> Any:
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, emoji=False)


def grid(rows: Iterable[tuple[Any, ...]], header: tuple[str, ...] = (), right: bool = False) -> Any:
    """Aligned columns without rules; the first column holds the names."""
    from rich.table import Table
    from rich.text import Text

    rows = list(rows)
    width = len(header) or max((len(row) for row in rows), default=1)
    table = Table(box=None, pad_edge=False, show_header=bool(header), header_style="dim", padding=(0, 2, 0, 0))
    for number in range(width):
        table.add_column(
            header[number] if header else "", justify="right" if right and number else "left", no_wrap=number == 0
        )
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    return table


def estimate(record: Fit | Study) -> str:
    """The cross-validated estimate, if there is one."""
    found = record.estimates.nested if isinstance(record, Study) else record.evidence.estimate
    if found is None:
        return ""
    how = "nested cross-validation: " if isinstance(record, Study) else ""
    mean, low, high = (wording.in_metric(record.metric, one) for one in (found.mean, *found.interval))
    name = f"{how}{wording.metric_name(record.metric)}"
    return f"{len(found.values)}-fold {name} {mean}, 95 % confidence interval {low} – {high}."


def one_line(record: Fit | Study) -> str:
    """The verdict in one line."""
    from ...reporting.report import verdict

    said = verdict(record)
    return " ".join(filter(None, (f"{said.headline}.", said.interval, estimate(record), said.story)))


def _metrics(record: Fit) -> Any:
    """The metrics that people look for first, on the training, validation and test sets; the report has all."""
    from rich.text import Text

    titles = {"train": "training", "valid": "validation", "test": "test"}
    parts = [part for part in titles if any(math.isfinite(value) for value in record.metrics[part].values())]
    rows = []
    measured = tuple(dict.fromkeys(name for part in parts for name in record.metrics[part]))
    for name in shown_metrics(measured, record.metric):
        style = "bold" if name == record.metric else ""
        values = [wording.in_metric(name, record.metrics[part].get(name)) for part in parts]
        rows.append(tuple(Text(text, style) for text in (wording.metric_name(name), *values)))
    return grid(rows, ("", *(titles[part] for part in parts)), right=True)


def _layers(layers: Iterable[PretrainedLayer]) -> Any:
    """How each layer was pre-trained."""
    rows = [
        (
            f"layer {layer.layer}",
            layer.learner,
            wording.whole(layer.units),
            wording.whole(layer.rows or None),
            f"{wording.metric_name(layer.metric)} {wording.number(layer.valid)}",
            wording.duration(layer.seconds),
        )
        for layer in layers
    ]
    return grid(rows, ("", "learner", "units", "rows", "validation", "time"))


def show_findings(out: Any, findings: Iterable[Finding]) -> None:
    """Findings, the most serious first, each with what to do next."""
    from rich.text import Text

    colours = {"error": "red", "warning": "yellow"}
    order = {"error": 0, "warning": 1}
    for finding in sorted(findings, key=lambda one: order.get(one.level, 2)):
        text = Text(finding.level, colours.get(finding.level, "cyan"))
        code = " ".join(filter(None, (finding.code, wording.clean(finding.where))))
        if code:
            text.append(f"  {code}", "bold")
        text.append(f"  {wording.clean(finding.what)}", "default")
        text.append(f" Next: {wording.clean(finding.next)}" if finding.next else "", "dim")
        out.print(text)


def show_result(record: Fit, folder: Path, report: Path | None) -> None:
    """The summary of a run: verdict, numbers, findings, and where everything is."""
    from rich.text import Text

    from ...reporting.report import verdict

    out = console()
    said = verdict(record)
    out.print(Text(said.headline, "bold red" if record.outcome.failed else "bold green"))
    for line in (said.interval, estimate(record), said.story):
        if line:
            out.print(Text(line))
    out.print()
    if layers := record.evidence.layers:
        out.print(_layers(layers))
        out.print()
    out.print(_metrics(record))
    if worth := wording.optimism(record.metric, record.metrics, record.data.judged_on):
        out.print(Text(worth, "dim"))
    if beside := wording.baselines(record.evidence.baselines, record.metric, record.metrics["test"].get(record.metric)):
        out.print(Text(beside))
    out.print()
    if record.evidence.profile is not None:
        out.print(grid(wording.profile_rows(record.evidence.profile), wording.PROFILE_HEADER, right=True))
        out.print()
    show_findings(out, record.findings)
    if report is not None:
        out.print(Text(f"report   {report}"), soft_wrap=True)
    out.print(Text(f"predict  gradwise predict {folder} NEW_DATA"), soft_wrap=True)


def _readable(value: Any) -> str:
    return ", ".join(map(_readable, value)) if isinstance(value, list) else wording.setting(value)


def show_plan(plan: dict[str, Any]) -> None:
    """Prints what a run would do."""
    from rich.text import Text

    out = console()
    out.print(Text("Dry run: nothing is trained or written.", "bold"))
    columns = plan["data"]["columns"]
    data = {name: value for name, value in plan["data"].items() if name not in {"columns", "notes"}}
    out.print()
    out.print(grid((Text(name, "dim"), _readable(value)) for name, value in data.items()))
    if columns:
        out.print()
        header = ("column", "kind", "missing", "categories")
        out.print(grid([tuple(wording.clean(value) for value in column.values()) for column in columns], header))
    for note in plan["data"]["notes"]:
        out.print(Text(f"  {wording.clean(note)}"))
    out.print()
    out.print(grid((Text(name, "dim"), _readable(value)) for name, value in plan["training"].items()))
    out.print()
    rows: list[tuple[Any, ...]] = []
    for choice in plan["recipe"]:
        path, value = choice["path"], _readable(choice["value"])
        if "default" not in choice:
            rows.append((Text(path, "cyan"), Text(value, "cyan"), ""))
            continue
        changed = f"default {_readable(choice['default'])}; " if choice["changed"] else ""
        rows.append((f"  {path}", Text(value, "bold" if changed else ""), Text(changed + choice["about"], "dim")))
    out.print(grid(rows))
    out.print()
    if plan.get("ranges"):
        out.print(grid(((d["path"], d["range"], d["about"]) for d in plan["ranges"]), ("searched", "range", "")))
        out.print()
    out.print(Text(f"repeat   {plan['command']}"), soft_wrap=True)
    out.print(Text(f"out      {plan['out']} ({plan['folder']})"), soft_wrap=True)
