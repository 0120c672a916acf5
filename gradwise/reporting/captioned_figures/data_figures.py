"""Figures of a data check: leakage, predictability and order."""

import math
from collections.abc import Iterator
from functools import partial

from ...records.evidence.check_evidence import DataEvidence
from .. import wording
from ..blocks import Block, Cell, Figure, Row, Table
from ..plots import check_plots
from .record_values import SHOWN, left_of


def data_figures(seen: DataEvidence) -> Iterator[Block]:
    """The balance of classes, and what was found of leaks and duplicates."""
    parts = seen.counts
    train = parts.get("train") or next(iter(parts.values()), {})
    if train:
        ordered = sorted(train.items(), key=lambda pair: -pair[1])
        shown = ordered[:SHOWN]
        rows: tuple[Row, ...] = tuple(
            (name, *(wording.whole(part.get(name, 0)) for part in parts.values())) for name, _ in ordered[:200]
        )
        often, seldom = ordered[0][1], ordered[-1][1]
        times = f", {wording.number(often / seldom)} times as many as the rarest" if seldom > 0 else ""
        more = f" The {SHOWN} commonest of {len(ordered)}." if len(ordered) > SHOWN else ""
        yield Figure(
            "classes",
            "Examples by class",
            f"The commonest class has {wording.whole(often)} training examples{times}.{more}",
            partial(check_plots.draw_counts, [n for _, n in shown], names=[name for name, _ in shown]),
            Table("Numbers", ("class", *parts), rows, tuple(range(1, len(parts) + 1))),
            height=60 + 22 * len(shown),
            margins=(left_of(wording.short(name, 18) for name, _ in shown), 40, 14, 8),
        )
    if table := _leak_table(seen):
        yield table


def _leak_table(seen: DataEvidence) -> Table | None:
    facts: list[Row] = []

    def add(what: str, told: str, wrong: bool = False) -> None:
        facts.append((what, Cell(told, strong=True) if wrong else told))

    for one in seen.copied:
        more = f"; {wording.whole(one.expected)} by chance" if one.expected >= 1 else ""
        title = "duplicate training rows" if one.part == "train" else f"rows of {one.part} also in training"
        many = one.copied > 2 * one.expected and one.copied > 0.01 * one.rows
        add(title, f"{wording.whole(one.copied)} of {wording.whole(one.rows)}{more}", many)
    for part, groups in seen.shared_groups.items():
        if groups:
            add(f"groups of {part} also in training", wording.whole(groups), True)
    if seen.constant:
        add("constant inputs", wording.whole(seen.constant))
    if math.isfinite(seen.best_input):
        add("score of the best single input", wording.percent(seen.best_input), seen.exact)
    if math.isfinite(seen.conflicting):
        add("examples with equal inputs but different classes", wording.percent(seen.conflicting))
        add("labels that disagree with nearly all neighbours", wording.percent(seen.denied))
    for part, area in seen.separable.items():
        what = f"how well a classifier separates {part} from training (AUC; 0.5: not at all)"
        add(what, wording.number(area), area > 0.8)
    return Table("Data checks", ("", "found"), tuple(facts), (1,)) if facts else None
