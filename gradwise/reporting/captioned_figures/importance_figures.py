"""How much the model needs each column: a figure, and why there is none."""

import math
from collections.abc import Iterator
from functools import partial

from ...records.evidence.fit_evidence import Importance
from ...records.score_scale import ScoreScale
from .. import wording
from ..blocks import Block, Figure, Prose, Table
from ..plots import run_plots

_SHOWN_COLUMNS = 20
_ROW_HEIGHT = 24
_SETS = {"test": "test", "valid": "validation", "train": "training"}


def importance_figures(found: Importance | None) -> Iterator[Block]:
    """The rise of the error when a column is shuffled, largest on top."""
    if found is None:
        return
    if found.skipped:
        yield Prose(f"The importance of the columns was not measured: {found.skipped}.")
        return
    if not any(math.isfinite(one.rise) for one in found.columns):
        return
    gap = ScoreScale.of_metric(found.metric).gap
    name, shown = wording.metric_name(found.metric), found.columns[:_SHOWN_COLUMNS]
    first = shown[0]
    said = (
        f"How much worse the {name} of {wording.whole(found.rows)} {_SETS[found.part]} rows gets when the values of a "
    )
    said += (
        f"column are shuffled ({found.repeats} times). Most for {wording.short(first.column, 40)}: {gap(first.rise)}. "
    )
    said += "Columns that say the same share their importance."
    if len(shown) < len(found.columns):
        said += f" The {len(shown)} most important of {len(found.columns)} are shown."
    rows = tuple((one.column, gap(one.rise), gap(one.standard_error)) for one in found.columns)
    table = Table("Numbers", ("column", f"rise of the {name}", "standard error"), rows, (1, 2))
    longest = max(len(text) for text in wording.short_names([one.column for one in shown], 22))
    margins = (26 + round(6.6 * longest), 40, 18, 12)
    draw = partial(run_plots.draw_importance, shown, metric=found.metric)
    height = _ROW_HEIGHT * len(shown) + 66
    yield Figure("importance", "Importance of the columns", said, draw, table, height=height, margins=margins)
