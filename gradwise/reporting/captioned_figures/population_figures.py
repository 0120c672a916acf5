"""Population-based training as pictures: each knob over the age of the members, and the line that won (row J8).

tuple(population_figures(study))
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...records.score_scale import ScoreScale
from ...records.study import Study
from ...records.study_analysis import PopulationHistory
from .. import wording
from ..blocks import Figure, Row, Table
from ..plots.axes import draw_frame, draw_legend, set_ticks, takes_axes
from ..plots.study_plots import score_axis, set_log_axis
from ..plots.style import FIRST, QUIET
from .study_figures import short_path_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN_POPULATIONS = 3  # the last ones
_WIDE = 30.0  # a ratio of values from which on their axis is logarithmic


@dataclass(frozen=True)
class MemberLines:
    """What every member had at each generation, (generations, members), and the same along the line that won."""

    ages: np.ndarray
    values: np.ndarray
    winner: np.ndarray  # shorter where the best network is older than the last generation


def member_lines(story: PopulationHistory, rows: Sequence[Any]) -> MemberLines:
    """The lines of a population for one knob, or for the score."""
    values = np.array(rows, float)
    winner = np.array([values[number, slot] for number, slot in enumerate(story.lineage)], float)
    return MemberLines(np.array(story.ages, float), values, winner)


def _value_axis(ax: "Axes", values: np.ndarray) -> None:
    sound = values[np.isfinite(values)]
    if len(sound) and sound.min() > 0 and sound.max() > _WIDE * sound.min():
        set_log_axis(ax.yaxis, wording.tick, (float(sound.min()), float(sound.max())))
    else:
        set_ticks(ax.yaxis, wording.tick)


@takes_axes
def draw_members(data: MemberLines, ax: "Axes", *, name: str, scale: ScoreScale | None = None) -> None:
    """A thin line for each member, a strong one for the ancestors of the network that won."""
    for place in range(data.values.shape[1]):
        label = "" if place else "members"
        ax.plot(data.ages, data.values[:, place], color=QUIET, linewidth=0.7, alpha=0.55, label=label)
    if len(data.winner):
        ages = data.ages[: len(data.winner)]
        ax.plot(ages, data.winner, color=FIRST, linewidth=2.2, label="the winner's line", solid_capstyle="round")
        ax.plot(ages[-1:], data.winner[-1:], color=FIRST, marker="o", markersize=5)
    draw_frame(ax, "examples visited", name)
    set_ticks(ax.xaxis, wording.age)
    if scale is None:
        _value_axis(ax, data.values)
    else:
        score_axis(ax.yaxis, data.values[np.isfinite(data.values)], scale)
    draw_legend(ax)


def _table(data: MemberLines, name: str, say: Any) -> Table:
    count = len(data.ages)
    shown = sorted({round(place) for place in np.linspace(0, count - 1, min(count, 12))})
    rows: list[Row] = []
    for number in shown:
        here = data.values[number][np.isfinite(data.values[number])]
        ends = f"{say(float(here.min()))} – {say(float(here.max()))}" if len(here) else wording.NOTHING
        line = say(float(data.winner[number])) if number < len(data.winner) else wording.NOTHING
        rows.append((wording.whole(data.ages[number]), line, ends))
    return Table("Numbers", ("age", f"{name}, the winner's line", "all members"), tuple(rows), (0, 1, 2))


def _of_population(study: Study, story: PopulationHistory, mark: str) -> Iterator[Figure]:
    scale, short = study.scale, short_path_names(study)
    numbers = f"trials {story.first} to {story.first + story.members - 1}"
    copied = "copied once" if story.copies == 1 else f"copied {story.copies:,} times"
    scores = member_lines(story, [scale.on(line) for line in story.scores])
    said = f"{story.members} members ({numbers}) over {story.intervals} intervals; one of the worst quarter {copied} "
    said += "one of the best."
    draw, table = partial(draw_members, scores, name=scale.name, scale=scale), _table(scores, scale.name, scale.write)
    yield Figure(f"population-scores{mark}", "The members of the population", said, draw, table, height=260)
    for number, path in enumerate(story.changing):
        data = member_lines(story, story.knobs[path])
        name = short.get(path, path)
        first, last = (wording.number(float(data.winner[n])) for n in (0, -1)) if len(data.winner) else ("", "")
        said = f"The winning network was trained with {first} at the start and {last} at the end." if first else ""
        draw, table = partial(draw_members, data, name=name), _table(data, name, wording.number)
        yield Figure(f"population-knob-{number}{mark}", f"The schedule of {name}", said, draw, table, height=260)


def population_figures(study: Study) -> Iterator[Figure]:
    """Scores and knobs of every member over its age, for the last few populations of the study."""
    stories = [story for story in study.analysis.populations if len(story.ages) > 1]
    for place, story in enumerate(stories[-_SHOWN_POPULATIONS:]):
        yield from _of_population(study, story, f"-{place}" if place else "")
