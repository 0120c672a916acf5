"""Algorithm 1 as a picture: every training of every level, and which were kept.

tuple(layerwise_figures(record.evidence.layerwise, ScoreScale.of_run(record.recipe, record.task)))
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ...records.evidence.fit_evidence import LayerwiseChoice, LayerwiseEvidence
from ...records.score_scale import ScoreScale
from ..blocks import Figure, Row, Table
from ..plots.axes import draw_frame, set_ticks, takes_axes
from ..plots.style import FIRST, QUIET, TEXT_SIZE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Level = tuple[str, list[float], list[float]]  # its name, the scores of all its trainings, those of the kept


@takes_axes
def levels(data: list[Level], ax: "Axes", *, scale: ScoreScale) -> None:
    """A column of points for each level, the kept ones filled; from left to right the stack grows."""
    for place, (_, tried, kept) in enumerate(data):
        spread, ordered = np.linspace(-0.18, 0.18, max(2, len(tried)))[: len(tried)], sorted(tried)
        ax.scatter(place + spread, ordered, s=22, facecolors="none", edgecolors=QUIET, linewidths=0.9)
        ax.scatter(place + spread[: len(kept)], ordered[: len(kept)], s=26, color=FIRST)
    best = [min(kept) for _, _, kept in data]
    ax.plot(np.arange(len(data)) - 0.18, best, color=FIRST, linewidth=1.2, alpha=0.6)
    draw_frame(ax, "", scale.name)
    ax.set_xticks(range(len(data)), [name for name, _, _ in data], fontsize=TEXT_SIZE)
    set_ticks(ax.yaxis, scale.tick)
    ax.margins(y=0.08)


def _levels(evidence: LayerwiseEvidence, scale: ScoreScale) -> list[Level]:
    found: list[Level] = []
    kept = evidence.scores
    for number, best in enumerate(kept, start=1):
        tried = [one.score for one in evidence.trainings if one.level == number and math.isfinite(one.score)]
        sound = [score for score in best if math.isfinite(score)]
        if not tried or not sound:
            return []
        name = f"{number} layer{'s' if number > 1 else ''}" if number < len(kept) else "fine-tuned"
        found.append((name, scale.on(tried).tolist(), scale.on(sound).tolist()))
    return found


def _choice(choice: LayerwiseChoice, scale: ScoreScale) -> str:
    """What to expect of the best of several."""
    if math.isnan(choice.corrected):
        return ""
    fresh = scale.say(choice.corrected)
    return f" As the best of {choice.of} fine-tunings this is optimistic: expect about {fresh} on new data."


def layerwise_figures(evidence: LayerwiseEvidence, scale: ScoreScale) -> Iterator[Figure]:
    """How the layers and their settings were chosen."""
    data = _levels(evidence, scale)
    if not data:
        return
    write = scale.write
    widths = [" · ".join(map(str, level[0])) if level else "" for level in evidence.widths]
    rows: tuple[Row, ...] = tuple(
        (name, str(len(tried)), str(len(kept)), write(min(kept)), write(max(tried)), units)
        for (name, tried, kept), units in zip(data, widths, strict=True)
    )
    total = sum(len(tried) for _, tried, _ in data)
    said = f"{total} trainings. All but the last column are scored by a linear probe; filled points were kept, and "
    said += f"the next layer was learned on each of them. The best went from {write(min(data[0][2]))} to "
    said += f"{write(min(data[-1][2]))}.{_choice(evidence.choice, scale)}"
    header = ("step", "trainings", "kept", "best", "worst", "units of the best")
    draw, table = partial(levels, data, scale=scale), Table("Numbers", header, rows, (1, 2, 3, 4))
    yield Figure("layerwise", "Layer by layer: all trainings, and those kept", said, draw, table, height=260)
