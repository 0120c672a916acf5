"""Figures of a data check: leakage, predictability and order."""

import math
from collections.abc import Iterator, Mapping
from functools import partial

from .. import wording
from ..blocks import Block, Cell, Figure, Row, Table
from ..plots import check_plots
from .record_values import SHOWN, Plain, array, as_number, left_of, part_of, rows_of


def data_figures(plain: Plain) -> Iterator[Block]:
    """The balance of classes, and what was found of leaks and duplicates."""
    parts = {
        str(part): dict(counts) for part, counts in part_of(plain, "counts").items() if isinstance(counts, Mapping)
    }
    train = parts.get("train") or next(iter(parts.values()), {})
    if train:
        ordered = sorted(train.items(), key=lambda pair: -as_number(pair[1]))
        shown = ordered[:SHOWN]
        rows: tuple[Row, ...] = tuple(
            (name, *(wording.whole(as_number(part.get(name, 0))) for part in parts.values()))
            for name, _ in ordered[:200]
        )
        often, seldom = as_number(ordered[0][1]), as_number(ordered[-1][1])
        times = f", {wording.number(often / seldom)} times as many as the rarest" if seldom > 0 else ""
        more = f" The {SHOWN} commonest of {len(ordered)}." if len(ordered) > SHOWN else ""
        yield Figure(
            "classes",
            "Examples by class",
            f"The commonest class has {wording.whole(often)} training examples{times}.{more}",
            partial(check_plots.draw_counts, [int(as_number(n)) for _, n in shown], names=[name for name, _ in shown]),
            Table("Numbers", ("class", *parts), rows, tuple(range(1, len(parts) + 1))),
            height=60 + 22 * len(shown),
            margins=(left_of(wording.short(name, 18) for name, _ in shown), 40, 14, 8),
        )
    if table := _leak_table(plain):
        yield table


def _leak_table(plain: Plain) -> Table | None:
    facts: list[Row] = []

    def add(what: str, told: str, wrong: bool = False) -> None:
        facts.append((what, Cell(told, strong=True) if wrong else told))

    for one in rows_of(plain.get("overlaps")):
        part = str(one.get("part"))
        rows, copied, expected = (as_number(one.get(name)) for name in ("rows", "copied", "expected"))
        more = f"; {wording.whole(expected)} by chance" if expected >= 1 else ""
        share = copied / rows if rows else 0.0
        title = {"train": "duplicate training rows"}.get(part, f"rows of {part} also in training")
        add(title, f"{wording.whole(copied)} of {wording.whole(rows)}{more}", copied > 2 * expected and share > 0.01)
    for part, pair in part_of(plain, "shared").items():
        if array(pair).shape == (2,) and pair[0]:
            add(f"groups of {part} also in training", f"{wording.whole(as_number(pair[0]))}", True)
    columns = part_of(plain, "columns")
    if columns.get("constant"):
        add("constant inputs", wording.whole(len(columns["constant"])))
    giving, signal = part_of(plain, "giving"), part_of(plain, "signal")
    if math.isfinite(as_number(giving.get("score"))):
        add("score of the best single input", wording.percent(as_number(giving["score"])), bool(giving.get("exact")))
    if math.isfinite(as_number(signal.get("conflicting"))):
        add("examples with equal inputs but different classes", wording.percent(as_number(signal["conflicting"])))
        add("labels that disagree with nearly all neighbours", wording.percent(as_number(signal.get("denied"))))
    for one in rows_of(plain.get("elsewhere")):
        area = as_number(one.get("area"))
        what = f"how well a classifier separates {one.get('part')} from training (AUC; 0.5: not at all)"
        add(what, wording.number(area), area > 0.8)
    return Table("Data checks", ("", "found"), tuple(facts), (1,)) if facts else None
