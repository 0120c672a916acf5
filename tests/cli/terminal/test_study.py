import dataclasses
import math
from pathlib import Path

import pytest

from gradwise.cli.terminal.study import answers, show_study
from gradwise.records.finding import Finding
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
    winner = {**study.winner, "score": 0.1, "corrected": 0.15, "values": {"optimiser.optimiser.learning_rate": 0.01}}
    committee = {**study.committee, "members": 5, "test": 0.25, "mean_member_test": 0.3}
    advice = {"advice": {"go_on": True, "sentence": "8 more trials would pay."}}
    told = dataclasses.replace(
        study,
        winner=winner,
        committee=committee,
        analysis=advice,
        findings=(Finding("warning", "mind the gap.", "E4"), Finding("note", "8 more trials would pay.", "E10")),
    )
    text = said(told, capsys, finished_study)
    assert text.startswith("Test error ")
    assert "95 % confidence interval" in text
    assert f"trial {winner['number']}" in text
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
        short = {"short_runs": {"sentence": sentence, "useful": useful}}
        told = said(dataclasses.replace(study, analysis=short, findings=()), capsys)
        assert ("Runs of a third of the length rank 40 trials like full runs." in told) is useful


def test_a_study_without_a_model_says_so_and_offers_nothing(study, capsys):
    bad = tuple(Trial(trial.number, trial.recipe, trial.values, "diverged") for trial in study.trials)
    text = said(
        dataclasses.replace(study, trials=bad, winner={}, committee={}, estimates={}, analysis={}, findings=()), capsys
    )
    assert text.startswith("Every trial diverged")
    assert "gradwise predict" not in text


def test_answers_are_sentences(study, capsys):
    asked = {"challenge": {"sentence": "`x`: 1 is better than 2."}, "seeds": {"sentence": "over 9 seeds it is 3."}}
    plain = dataclasses.replace(study, winner={}, estimates={"test": math.nan}, analysis=asked, findings=())
    assert answers(plain) == ["`x`: 1 is better than 2.", "Over 9 seeds it is 3."]
    text = said(plain, capsys)
    assert text.startswith("`x`: 1 is better than 2.\nOver 9 seeds it is 3.")
    assert "Test error" not in text
