"""The page of a check: the verdict, the findings and what to do next, then the figures of each area.

    render(check_page(checked))      HTML text

Sections without evidence are omitted: a check of three areas has a page of three areas.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np

from ...evaluation.run_figure_data import Curve, LearningCurves
from ...records.check import Checked
from ...records.evidence.check_evidence import CheckedEvidence, FlowEvidence, TrainingEvidence
from ...records.score_scale import ScoreScale, is_in_percent
from .. import wording
from ..blocks import Block, CodeLines, Figure, Items, Page, Prose, Row, Section, Table, Verdict
from ..captioned_figures import check_figures, data_figures, flow_graph_figures, signal_flow_figures
from ..plots import run_plots
from .provenance import finding_notice

_OUTCOMES = {"found": "found something"}


def check_verdict(record: Checked) -> Verdict:
    """The verdict in a sentence, and how many findings of each level there are."""
    counted = [
        f"{count} {name}{'' if count == 1 else 's'}"
        for name in ("error", "warning", "note")
        if (count := sum(finding.level == name for finding in record.findings))
    ]
    ran = sum(one.outcome in ("passed", "found") for one in record.ran)
    story = f"{ran} check{'' if ran == 1 else 's'} in {wording.duration(record.seconds)}."
    # A long verdict is not set in the largest type: its first clause is the headline, the rest follows.
    verdict = record.verdict.replace("`", "")
    first, mark, rest = verdict.partition(": ")
    if len(verdict) <= 90 or not mark or len(first) > 90:
        first, rest = verdict, ""
    told = ", ".join(counted) if counted else "nothing found"
    return Verdict(
        wording.sentence(first), " ".join(filter(None, (wording.sentence(rest), f"{wording.sentence(told)}."))), story
    )


def _found(record: Checked) -> Iterator[Block]:
    if not record.findings:
        yield Prose("No findings.")
    for finding in record.findings:
        yield finding_notice(finding)
    codes = [finding.code for finding in record.findings if finding.code]
    if codes:
        yield Prose(f"Each code has a page: `gradwise explain {codes[0]}`.")


def _ran(record: Checked) -> Iterator[Block]:
    rows: tuple[Row, ...] = tuple(
        (one.name, _OUTCOMES.get(one.outcome, one.outcome), wording.duration(one.seconds), wording.short(one.why, 200))
        for one in record.ran
    )
    header = ("check", "outcome", "time", "why")
    some = any(one.why for one in record.ran)
    shown = rows if some else tuple(row[:3] for row in rows)
    if rows:
        yield Table("", header if some else header[:3], shown, (2,))


def _training_blocks(seen: TrainingEvidence) -> Iterator[Block]:
    """Training and validation over a whole training."""
    ages, train, valid = (np.array(values, float) for values in (seen.ages, seen.train, seen.valid))
    if len(ages) < 2 or not np.isfinite(valid).any():
        return
    scale = ScoreScale("error") if is_in_percent(seen.numbers.metric) else ScoreScale("loss", title="score")
    best = int(np.nanargmin(valid))
    keep = [np.isfinite(part) for part in (train, valid)]
    curves = LearningCurves(
        quantity="score",
        scale=scale,
        train=Curve(ages[keep[0]], train[keep[0]]),
        valid=Curve(ages[keep[1]], valid[keep[1]]),
        best=(float(ages[best]), float(valid[best])),
        end_examples=int(ages[-1]),
        diverged=False,
    )
    write = scale.write
    rows: tuple[Row, ...] = tuple(
        (wording.whole(a), write(float(t)), write(float(v))) for a, t, v in zip(ages, train, valid, strict=True)
    )
    yield Figure(
        "training",
        "A whole training",
        f"Validation {scale.quantity} is lowest, {write(float(valid[best]))}, after "
        f"{wording.whole(float(ages[best]))} examples.",
        partial(run_plots.draw_learning_curves, curves),
        Table("Numbers", ("age", "training", "validation"), rows, (0, 1, 2)),
        height=280,
    )


Evidence = TypeVar("Evidence")


def _shown(make: Callable[[Evidence], Iterable[Block]], evidence: Evidence | None) -> Iterator[Block]:
    """The blocks of an area; none if it saw nothing."""
    yield from () if evidence is None else make(evidence)


def _learning(evidence: CheckedEvidence) -> Iterator[Block]:
    yield from _shown(_training_blocks, evidence.training)
    yield from _shown(check_figures.growth_figures, evidence.growth)
    yield from _shown(check_figures.overfit_figures, evidence.overfit)
    yield from _shown(check_figures.start_figures, evidence.start)


def _flow_blocks(flow: FlowEvidence) -> Iterator[Block]:
    yield from signal_flow_figures.flow_blocks(flow.groups, layers=flow.layers, maps=flow.maps)


def _verdict_blocks(record: Checked) -> Iterator[Block]:
    """What to do, in order, and the errors on which the verdict rests."""
    if record.remedies:
        yield Items(tuple(wording.sentence(remedy) for remedy in record.remedies))
    numbers = None if record.evidence.verdict is None else record.evidence.verdict.numbers
    if numbers is None:
        return
    titles = ("training", "validation", "test", "constant prediction", "wanted")
    values = (numbers.train, numbers.valid, numbers.test, numbers.chance, numbers.target)
    rows: tuple[Row, ...] = tuple(
        (title, wording.in_metric(numbers.metric, value))
        for title, value in zip(titles, values, strict=True)
        if math.isfinite(value)
    )
    if len(rows) > 1:
        yield Table("Basis of the verdict", ("", wording.metric_name(numbers.metric)), rows, (1,))


def _sections(record: Checked) -> Iterator[Section]:
    evidence = record.evidence
    count = f" ({len(record.findings)})" if record.findings else ""
    yield Section("findings", "Findings", tuple(_found(record)), f"Findings{count}")
    parts: tuple[tuple[str, str, Iterator[Block]], ...] = (
        ("remedies", "What to do next", _verdict_blocks(record)),
        ("ran", "Checks run", _ran(record)),
        ("gradient", "Gradient", _shown(check_figures.gradient_figures, evidence.gradient)),
        ("learning", "Learning", _learning(evidence)),
        ("rates", "Rates", _shown(check_figures.learning_rate_figures, evidence.rates)),
        ("flow", "Activations and gradients by layer", _shown(_flow_blocks, evidence.flow)),
        ("data", "Data", _shown(data_figures.data_figures, evidence.data)),
        ("choices", "Choices", _shown(check_figures.choice_blocks, evidence.choices)),
        ("graph", "The flow graph", _shown(flow_graph_figures.graph_blocks, evidence.graph)),
    )
    short = {"remedies": "Next", "ran": "Run", "flow": "Flow", "graph": "Graph"}
    for name, title, blocks in parts:
        if shown := tuple(blocks):
            yield Section(name, title, shown, short.get(name, ""))
    yield Section("repeat", "How to repeat it", tuple(_repeat(record)), "Repeat")


def _repeat(record: Checked) -> Iterator[Block]:
    command = record.machine.get("command")
    if isinstance(command, str) and command:
        yield CodeLines("In the shell", command)
    machine = {name: wording.clean(value) for name, value in record.machine.items() if value}
    facts = [f"seed {record.seed}", f"gradwise {wording.clean(record.version)}"]
    for name, form in (("jax", "JAX {}"), ("python", "Python {}"), ("cores", "{} cores")):
        facts += [form.format(machine[name])] if name in machine else []
    facts += [wording.device(machine["device"])] if "device" in machine else []
    yield Prose("With " + ", ".join(facts) + ".")


def check_page(record: Checked) -> Page:
    """The report of a check."""
    said = check_verdict(record)
    name = wording.short(record.subject or "check", 80)
    date = wording.clean(record.machine.get("date") or "")
    made = f"Made by gradwise {wording.clean(record.version)}" + (f" on {date}" if date else "") + "."
    title = f"{name}: {said.headline[:1].lower()}{said.headline[1:]}"
    return Page(title, name, "a check", said, (), tuple(_sections(record)), made)
