"""Where the time of a run went: a figure with its table."""

from collections.abc import Iterator
from functools import partial

from ...records.evidence.fit_evidence import Profile
from .. import wording
from ..blocks import Block, Figure, Table
from ..plots import run_plots

_ROW_HEIGHT = 24


def profile_figures(found: Profile | None) -> Iterator[Block]:
    """The phases, each beginning where the one before it ended."""
    if found is None or not found.phases:
        return
    largest = max(found.phases, key=lambda one: one.seconds)
    said = (
        f"{wording.duration(found.seconds)} in all, up to the writing of this page: {largest.name} took most, "
        f"{wording.duration(largest.seconds)} ({wording.percent(found.share(largest))}). What is compiled belongs to "
        "compiling, wherever it happens. The bars follow one another, so together they are the whole."
    )
    table = Table("Numbers", wording.PROFILE_HEADER, tuple(wording.profile_rows(found)), (1, 2))
    longest = max(len(one.name) for one in found.phases)
    margins = (26 + round(6.6 * longest), 40, 56, 12)
    height = _ROW_HEIGHT * len(found.phases) + 66
    draw = partial(run_plots.draw_profile, found)
    yield Figure("profile", "Seconds of each phase", said, draw, table, height=height, margins=margins)
