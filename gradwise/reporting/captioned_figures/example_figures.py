"""What became of each example: the spread of their losses, and the examples to look at (row F6)."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...evaluation.example_evidence import group_losses, of_set, ranked, suspects
from ...records.evidence.example_record import ExampleRecord
from .. import wording
from ..blocks import Block, Figure, Table
from ..plots import example_plots

_SHOWN = 10
_SHOWN_SUSPECTS = 30
_TITLES = {
    "set": "set",
    "row": "row",
    "mean_loss": "mean loss",
    "first_loss": "first",
    "last_loss": "last",
    "deviation": "deviation",
    "learned_at": "learned at visit",
    "forgotten": "times forgotten",
    "confidence": "confidence",
}


def _cell(name: str, value: Any) -> str:
    if name in ("learned_at", "forgotten"):
        return wording.whole(float(value)) if np.isfinite(value) else wording.NOTHING
    if isinstance(value, float | np.floating):
        return wording.number(float(value))
    return wording.short(value, 30)


def _table(record: ExampleRecord, caption: str, places: Sequence[int] | np.ndarray, names: Sequence[str]) -> Table:
    """A table of some examples: row, targets and predictions, then these columns."""
    columns = record.columns
    named = [name for name in columns if name.startswith(("target", "predicted"))][:6]
    shown = ["row", *named, *names]
    rows = tuple(tuple(_cell(name, columns[name][place]) for name in shown) for place in places)
    header = tuple(_TITLES.get(name, name.replace("_", " ")) for name in shown)
    right = tuple(number for number, name in enumerate(shown) if name not in (*named, "set"))
    return Table(caption, header, rows, right, "Rows are counted from 0 in the data.", folded=True)


def _loss_figure(record: ExampleRecord) -> Figure | None:
    groups = group_losses(record)
    if not groups.counts:
        return None
    parts = [f"{wording.whole(int(count.sum()))} {name}" for name, count in groups.counts.items()]
    said = f"Examples by their mean loss over all visits: {', '.join(parts)}."
    if "forgotten" in groups.counts:
        said += " Forgotten: wrong after having been right."
    rows = tuple(
        (
            f"{wording.number(low)} to {wording.number(high)}",
            *(wording.whole(int(count[place])) for count in groups.counts.values()),
        )
        for place, (low, high) in enumerate(zip(groups.edges[:-1], groups.edges[1:], strict=True))
    )
    header = ("mean loss", *groups.counts)
    table = Table("Numbers", header, rows, tuple(range(1, len(header))))
    return Figure("example-losses", "Losses of the examples", said, partial(example_plots.draw_losses, groups), table)


def example_figures(record: ExampleRecord | None) -> Iterator[Block]:
    """The spread of the losses; then suspect labels, the hardest, the easiest and the most changed examples."""
    if record is None or not np.isfinite(record.columns["mean_loss"]).any():
        return
    if figure := _loss_figure(record):
        yield figure
    columns = record.columns
    losses = ("mean_loss", "first_loss", "last_loss")
    places = suspects(record)
    if len(places):
        more = f", the first {_SHOWN_SUSPECTS} of {len(places)}" if len(places) > _SHOWN_SUSPECTS else ""
        said = f"Suspected label errors, the most certain first{more}"
        yield _table(record, said, places[:_SHOWN_SUSPECTS], ("set", "confidence", "mean_loss"))
    for name in ("training", "validation"):
        if not len(of_set(record, name)):
            continue
        mean = columns["mean_loss"]
        of_training = (
            ("learned_at", "forgotten") if np.isfinite(columns["forgotten"][of_set(record, name)]).any() else ()
        )
        hardest, easiest = (ranked(record, name, sign * mean, _SHOWN) for sign in (1, -1))
        yield _table(record, f"The hardest {name} examples", hardest, (*losses, *of_training))
        yield _table(record, f"The easiest {name} examples", easiest, losses)
        changed = ranked(record, name, columns["deviation"], _SHOWN)
        yield _table(record, f"The {name} examples whose loss changed most", changed, (*losses, "deviation"))
        if of_training:
            forgotten = ranked(record, name, columns["forgotten"], _SHOWN)
            forgotten = forgotten[columns["forgotten"][forgotten] > 0]
            if len(forgotten):
                yield _table(record, f"The {name} examples forgotten most often", forgotten, (*of_training, *losses))
