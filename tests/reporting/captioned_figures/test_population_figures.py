"""The pictures of population-based training: what they draw is what the population did."""

import dataclasses
import math

import numpy as np
import pytest

from gradwise.records.study_analysis import Analysis, PopulationHistory
from gradwise.reporting.captioned_figures.population_figures import draw_members, member_lines, population_figures
from gradwise.reporting.svg import picture
from tests.searching.strategies.test_population_search import RATE, SCALE, searched

STORY = PopulationHistory(
    first=0,
    members=2,
    intervals=3,
    every=1,
    changing=(),
    ages=(100, 200, 300),
    scores=((0.4, 0.3), (0.2, math.nan), (0.3, 0.1)),
    parents=(),
    knobs={},
    lineage=(1, 0),
    best_score=0.2,
    copies=0,
)


def test_the_winner_s_line_goes_through_its_ancestors() -> None:
    data = member_lines(STORY, STORY.scores)
    assert data.winner.tolist() == [0.3, 0.2]  # slot 1 first, then slot 0; the best network is older than the end
    ax = draw_members(data, name="score")
    lines = [(line.get_xdata().tolist(), line.get_ydata().tolist()) for line in ax.lines]
    assert lines[0] == ([100, 200, 300], [0.4, 0.2, 0.3])
    assert np.isnan(lines[1][1][1])
    assert lines[2] == ([100, 200], [0.3, 0.2])
    assert lines[3] == ([200], [0.2])


@pytest.fixture(scope="module")
def study():
    return searched(trials=4)


def test_a_study_shows_its_scores_and_every_knob_that_changed(study) -> None:
    figures = tuple(population_figures(study))
    assert [figure.title for figure in figures] == ["The members of the population", "The schedule of learning_rate"]
    assert SCALE not in study.analysis.populations[0].changing
    (story,) = study.analysis.populations
    assert "4 members (trials 0 to 3) over 8 intervals" in figures[0].description
    first = story.knobs[RATE][0][story.lineage[0]]
    assert figures[1].table.rows[0][1] == f"{first:.3g}"
    for figure in figures:
        assert "<svg" in picture(figure)


def test_other_studies_have_no_such_pictures(study) -> None:
    assert tuple(population_figures(dataclasses.replace(study, analysis=Analysis()))) == ()
