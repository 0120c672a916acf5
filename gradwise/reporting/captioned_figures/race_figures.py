"""The figures of a race of optimisers (row H9): by error and by loss, against seconds and against examples."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from ...records.study import Study
from ...records.study_analysis import Overtaking
from .. import wording
from ..blocks import Figure, Row, Table
from ..plots import race_plots


def _row(one: Overtaking, seeds: int, write: Any) -> Row:
    clock = wording.duration if one.clock == "seconds" else wording.whole
    if not math.isfinite(one.at):
        moment, rest = f"not before {clock(one.until)}", (wording.NOTHING,) * 3
    else:
        moment = "from the first update" if one.at == 0 else clock(one.at)
        rest = (wording.whole(one.updates[1]), wording.whole(one.updates[0]), write(one.level))
    return (one.method, one.clock, moment, *rest, f"{one.seeds} of {seeds}")


def race_figures(study: Study) -> Iterator[Figure]:
    """The best so far of every training, and a table of who overtakes when."""
    found, scale = study.analysis.break_even, study.scale
    if found is None:
        return
    seeds = len({line.seed for line in found.lines})
    rates = {line.method: line.rate for line in found.lines if math.isfinite(line.rate)}
    tuned = ", ".join(f"{method} at the rate {wording.number(rate)}" for method, rate in rates.items())
    for measure, title, write in (
        ("error", f"Who overtakes, by {scale.name}", scale.say),
        ("loss", "Who overtakes, by training loss", wording.number),
    ):
        said = f"The best so far, a line for each of {seeds} seeds. A ring marks where a batch method is ahead of "
        said += f"{found.stochastic} for good (median over seeds). Neither compiling nor measuring is on the clock; "
        said += "an update of a batch method counts each example once."
        said += f" With {tuned}, chosen on another seed by the {scale.name}." if tuned else ""
        rows = tuple(_row(one, seeds, write) for one in found.overtakings if one.measure == measure)
        name = scale.name if measure == "error" else "training loss"
        header = ("method", "clock", "overtakes at", "its updates", f"updates of {found.stochastic}", name, "seeds")
        draw = partial(race_plots.draw_race, found, measure=measure, scale=scale)
        look: Any = {"width": 700, "height": 260, "margins": (46, 40, 12, 26), "wide": True}
        yield Figure(f"race-{measure}", title, said, draw, Table("Numbers", header, rows, (3, 4, 5)), **look)
