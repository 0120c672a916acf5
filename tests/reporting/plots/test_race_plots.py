"""The drawing of a race: a line for each seed, a ring where the batch method overtakes."""

import math

import pytest
from matplotlib.figure import Figure as Canvas

from gradwise.records.score_scale import ScoreScale
from gradwise.records.study_analysis import BreakEven, Overtaking, RaceLine
from gradwise.reporting.plots.race_plots import draw_race

UPDATES = (0, 10, 20, 40)


def _line(method: str, seed: int, loss: tuple[float, ...], error: tuple[float, ...]) -> RaceLine:
    examples, seconds = tuple(8 * n for n in UPDATES), tuple(0.1 * n for n in UPDATES)
    return RaceLine(method, 8, math.nan, seed, UPDATES, examples, seconds, loss, error)


def _found(measure: str, clock: str, at: float, level: float) -> Overtaking:
    return Overtaking("Lbfgs", measure, clock, at, 4.0, level, (15.0, 15.0), 120.0, 2)


RACE = BreakEven(
    "Sgd",
    ("Lbfgs",),
    tuple(
        _line(method, seed, (2.0, first, first / 2, last), (0.5, 0.2, 0.1, 0.0))
        for method, first, last in (("Sgd", 0.4, 0.2), ("Lbfgs", 1.0, 0.01))
        for seed in (1, 2)
    ),
    (_found("loss", "seconds", 1.5, 0.35), _found("loss", "examples", 120.0, 0.35), _found("error", "seconds", 0, 0.5)),
    "",
)


def panels(measure: str) -> list:
    ax = Canvas().add_subplot()
    draw_race(RACE, ax, measure=measure, scale=ScoreScale())
    return list(ax.child_axes)


def test_each_seed_is_a_line_and_each_method_is_named_once() -> None:
    by_time, by_examples = panels("loss")
    long = [line for line in by_time.get_lines() if len(line.get_xdata()) == 3]
    assert [line.get_ydata()[-1] for line in long] == [0.2, 0.2, 0.01, 0.01]
    assert list(long[0].get_xdata()) == pytest.approx([1.0, 2.0, 4.0])
    assert [text.get_text() for text in by_examples.get_legend().get_texts()] == ["Sgd", "Lbfgs"]


def test_a_ring_stands_where_it_overtakes_on_either_clock_and_nowhere_else() -> None:
    rings = [
        [tuple(line.get_xydata()[0]) for line in panel.get_lines() if line.get_marker() == "o"]
        for panel in panels("loss")
    ]
    assert rings == [[(1.5, 0.35)], [(120.0, 0.35)]]
    assert [line.get_marker() for line in panels("error")[0].get_lines()].count("o") == 0  # it led from the beginning


def test_an_error_of_zero_has_no_logarithm() -> None:
    assert [panel.get_yscale() for panel in panels("error")] == ["linear", "linear"]
    assert [panel.get_yscale() for panel in panels("loss")] == ["log", "log"]
