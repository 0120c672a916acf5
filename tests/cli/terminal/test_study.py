import dataclasses
import math
from pathlib import Path

import pytest

from gradwise.cli.terminal.study import answers, show_study
from gradwise.records.finding import Finding
from gradwise.records.study_analysis import Advice, Analysis, Challenge, SeedDistribution, ShortRuns
from gradwise.records.study_conclusions import CorrectedScore, Estimates, Winner
from gradwise.records.study_files import read_study
from gradwise.records.trial import Trial


@pytest.fixture
def study(finished_study):
    return read_study(finished_study)


def said(study, capsys, folder="nowhere"):
    show_study(study, Path(folder), None)
    return capsys.readouterr().out.replace("\u202f", " ")


@pytest.mark.slow
def test_the_summary_tells_the_winner_its_worth_and_the_committee(study, capsys, finished_study):
    values = {"optimiser.optimiser.learning_rate": 0.01}
    winner = Winner(study.winner.number, 0.1, values, CorrectedScore(0.15, 0.05, (0.1, 0.2)))
    committee = dataclasses.replace(study.committee, members=5, member_tests=(0.25, 0.35))
    told = dataclasses.replace(
        study,
        winner=winner,
        committee=committee,
        estimates=dataclasses.replace(study.estimates, test=0.25),
        analysis=Analysis(Advice(True, "8 more trials would pay.", 0.1, 0.01, 4)),
        findings=(Finding("warning", "mind the gap.", "E4"), Finding("note", "8 more trials would pay.", "E10")),
    )
    text = said(told, capsys, finished_study)
    assert text.startswith("Test error ")
    assert "95 % confidence interval" in text
    assert f"trial {winner.number}" in text
    assert "learning_rate  0.01" in text
    assert "10.0 % (" in text
    assert "expected on new data 15.0 %" in text
    assert "5 networks (seeds): 25.0 % together, 30.0 % alone" in text
    assert text.count("8 more trials would pay.") == 1
    assert "warning  mind the gap." in text
    assert "gradwise predict" in text
    assert "--resume --trials +50" in text


def test_what_short_runs_tell_is_said_where_it_decides(study, capsys):
    sentence = "runs of a third of the length rank 40 trials like full runs."
    for useful in (True, False):
        short = Analysis(short_runs=ShortRuns((), (), 300, sentence, useful))
        told = said(dataclasses.replace(study, analysis=short, findings=()), capsys)
        assert ("Runs of a third of the length rank 40 trials like full runs." in told) is useful


def test_a_study_without_a_model_says_so_and_offers_nothing(study, capsys):
    bad = tuple(Trial(trial.number, trial.recipe, trial.values, "diverged") for trial in study.trials)
    nothing = {"winner": None, "committee": None, "estimates": Estimates(), "analysis": Analysis(), "findings": ()}
    text = said(dataclasses.replace(study, trials=bad, **nothing), capsys)
    assert text.startswith("Every trial diverged")
    assert "gradwise predict" not in text


def test_answers_are_sentences(study, capsys):
    seeds = SeedDistribution((), math.nan, math.nan, {}, {}, "over 9 seeds it is 3.")
    asked = Analysis(challenge=Challenge("x", 2, (), (), "`x`: 1 is better than 2."), seeds=seeds)
    plain = dataclasses.replace(study, winner=None, analysis=asked, findings=())
    assert answers(plain) == ["`x`: 1 is better than 2.", "Over 9 seeds it is 3."]
    text = said(plain, capsys)
    assert text.startswith("`x`: 1 is better than 2.\nOver 9 seeds it is 3.")
    assert "Test error" not in text
