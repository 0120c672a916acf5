"""The figures of a race say who overtakes when, and with which rates."""

import dataclasses
import math

from gradwise.records.study_analysis import Analysis
from gradwise.reporting.captioned_figures.race_figures import race_figures
from gradwise.reporting.svg import picture
from tests.reporting.planted import make_study
from tests.reporting.plots.test_race_plots import RACE


def test_the_table_has_a_row_for_each_clock() -> None:
    own = dataclasses.replace(RACE.lines[0], rate=0.125)
    never = dataclasses.replace(RACE.overtakings[0], method="HessianFree", at=math.inf, level=math.nan, seeds=1)
    race = dataclasses.replace(RACE, lines=(own, *RACE.lines[1:]), overtakings=(*RACE.overtakings, never))
    study = dataclasses.replace(make_study(), analysis=Analysis(break_even=race))
    error, loss = race_figures(study)
    assert (error.name, loss.name) == ("race-error", "race-loss")
    assert loss.table.rows == (
        ("Lbfgs", "seconds", "1.5 s", "15", "15", "0.35", "2 of 2"),
        ("Lbfgs", "examples", "120", "15", "15", "0.35", "2 of 2"),
        ("HessianFree", "seconds", "not before 4.0 s", "–", "–", "–", "1 of 2"),
    )
    assert error.table.rows[0][2] == "from the first update"
    assert "With Sgd at the rate 0.125, chosen on another seed" in loss.description
    assert "<svg" in picture(loss)


def test_a_study_without_a_race_has_no_such_figure() -> None:
    assert list(race_figures(make_study())) == []
