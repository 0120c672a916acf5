"""Questions answered by trials of their own: challenge, compare, seeds; and studies merged."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

import gradwise as gw
from gradwise.records.study_files import read_study

SMALL = ("--no-report", "--out", "mine")


@pytest.fixture
def ask(trial_words, gradwise):
    """A question about `flowers.csv`, with small trials."""
    return lambda name, *words: gradwise(name, "flowers.csv", *words, *trial_words, *SMALL)


@pytest.mark.slow
def test_a_challenge_is_answered_in_a_sentence_with_an_interval(table, ask, gradwise):
    said = ask("challenge", "optimiser.learning_rate=0.00001", "--seeds", "3", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)["analysis"]["challenge"]
    assert (found["path"], found["reference"]) == ("optimiser.optimiser.learning_rate", 0.0015)
    assert [len(one["scores"]) for one in found["values"]] == [3, 3]
    assert "0.0015" in found["sentence"]
    assert "95 % confidence interval" in found["sentence"]
    study = read_study("mine")
    assert [trial.phase for trial in study.trials] == ["challenge"] * 6
    assert gradwise("report", "mine").code == 0
    assert found["sentence"].split(":")[1].strip()[:40] in Path("mine/report.html").read_text()


@pytest.mark.slow
def test_a_comparison_searches_for_each_value(table, ask):
    decay = ("--range", "optimiser.decay=uniform(0.9, 0.999)")
    words = ("optimiser.learning_rate=0.001,0.01", *decay, "--strategy", "random", "--trials", "4", "--seeds", "2")
    said = ask("compare", *words, "--quiet")
    assert said.code == 0, said.err
    assert said.out.startswith("`optimiser.optimiser.learning_rate`, validation error: ")
    assert "each is the best of 2 trials, retrained." in said.out
    found = read_study("mine").analysis.comparison
    assert [one.value for one in found.values] == [0.001, 0.01]
    searched = [trial for trial in read_study("mine").trials if "optimiser.decay" in trial.values]
    assert len(searched) == 2 * 2
    assert len(read_study("mine").trials) == 2 * (2 + 2)


@pytest.mark.slow
def test_a_distribution_over_seeds(table, ask, gradwise):
    said = ask("seeds", "--seeds", "5")
    assert said.code == 0, said.err
    assert said.out.startswith("Over 5 seeds the validation error is ")
    study = read_study("mine")
    assert len(study.analysis.seeds.scores) == 5
    again = gradwise(*shlex.split(study.settings["command"])[1:], "--on", "here", "--no-report", "--out", "again")
    assert again.code == 0, again.err
    assert read_study("again").analysis.seeds == study.analysis.seeds


@pytest.mark.slow
def test_two_studies_join_into_one(searched, search_words, gradwise):
    more = ("--trials", "3", "--seed", "1", "--finalists", "1", "--seeds", "2", "--no-report", "--out", "other")
    assert gradwise(*search_words, *more).code == 0
    parts = {name: read_study(name).trials for name in ("study", "other")}
    said = gradwise("merge", "study", "other", "--out", "both", "--on", "here", "--no-report", "--json")
    assert said.code == 0, said.err
    both = read_study("both")
    mine = [trial for trial in both.trials if trial.number <= parts["study"][-1].number]
    assert [(t.number, t.values, t.score) for t in mine] == [(t.number, t.values, t.score) for t in parts["study"]]
    offset = both.settings["merged"][1]["offset"]
    moved = {trial.number: trial for trial in both.trials}
    for trial in parts["other"]:
        assert moved[trial.number + offset].values == trial.values
        assert moved[trial.number + offset].score == trial.score
    assert sum(trial.phase == "search" for trial in both.trials) == 7
    # Whoever stood in another study's final learned from other rows; here its setting is run again.
    members = both.committee.numbers
    assert all(moved[number].phase == "finalist" for number in members)
    on = gradwise("search", "--out", "both", "--resume", "--trials", "+1", "--on", "here", "--no-report", "--quiet")
    assert on.code == 0, on.err
    assert sum(trial.phase == "search" for trial in read_study("both").trials) == 8
    assert read_study("both").settings["merged"] == both.settings["merged"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("merge", "study"), "at least two studies"),
        (("merge", "study", "nowhere"), "merge nowhere: no study there"),
        (("merge", "study", "empty"), "merge empty: the folder has no study.journal"),
        (("merge", "study", "stored"), "merge stored: its trials are in sqlite:///trials.db"),
        (("merge", "study", "flowers.csv"), "flowers.csv"),
        (("merge", "study", "study", "--out", "study"), "study already exists"),
        (("challenge", "flowers.csv"), "missing argument"),
        (("challenge", "flowers.csv", "model.widths"), "path=value,value"),
        (("challenge", "flowers.csv", "model.widht=8,9"), "Did you mean 'model.widths'?"),
        (("challenge", "flowers.csv", "optimiser.learning_rate=fast"), "expected a number; got 'fast'"),
        (("challenge", "flowers.csv", "optimiser.learning_rate=0.025"), "at least two distinct values"),
        (("compare", "flowers.csv", "a=1", "--strategy", "pbt"), "pbt changes them during training"),
        (("seeds", "flowers.csv", "--seeds", "0"), "--seeds 0: expected a whole number from 1"),
        (("seeds", "flowers.csv", "--store", "sqlite:///x.db"), "unknown option --store"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(words, says, searched, here, gradwise):
    Path("empty").mkdir()
    Path("stored").mkdir()
    Path("stored/study.toml").write_text('[search]\ndata = "x"\n[trials]\nstore = "sqlite:///trials.db"\n')
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    target = () if words[0] == "merge" else ("--target", "kind", "--on", "here")
    out = () if "--out" in words else ("--out", "mine")
    said = gradwise(*words, *target, *out)
    assert (said.code, said.out) == (2, ""), said.err
    assert says in said.err
    assert said.err.count("\n") == 1
    assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == before
    assert not Path("mine").exists()


def test_data_without_a_target_are_refused(here, gradwise):
    np.save("rows.npy", np.random.default_rng(0).random((120, 5)).astype(np.float32))
    said = gradwise("seeds", "rows.npy", "--on", "here", "--out", "mine")
    assert (said.code, said.out) == (2, "")
    assert said.err == "error: gradwise seeds needs a target to predict, and these data have none.\n"
    assert not Path("mine").exists()


RACE = ("--set", "model.widths=8", "--set", "stopping=Off", "--set", "stopping.epochs=6")


def test_the_break_even_of_a_table_is_answered_with_a_picture(table, gradwise):
    words = ("flowers.csv", "--target", "kind", "--methods", "Lbfgs", "--seeds", "2", "--budget", "20s", *RACE)
    said = gradwise("break-even", *words, "--out", "mine", "--quiet")
    assert said.code == 0, said.err
    assert said.out.startswith("By validation error, Lbfgs ")
    assert "; by training loss, Lbfgs " in said.out
    study = read_study("mine")
    found = study.analysis.break_even
    assert (found.stochastic, found.batch) == ("Sgd", ("Lbfgs",))
    assert len(found.lines) == 4
    assert all(trial.recipe.model.dropout == 0.0 for trial in study.trials)
    assert {line.size for line in found.lines} == {3, 36}  # unless set, a tenth of the training set at the most
    assert study.settings["command"].startswith("gradwise break-even flowers.csv --target kind --seed 0")
    page = Path("mine/report.html").read_text()
    assert "Who overtakes, by training loss" in page
    assert "Who overtakes, by validation error" in page


def test_the_break_even_of_arrays_takes_the_optimiser_that_is_given():
    random = np.random.default_rng(0)
    inputs = random.normal(size=(80, 3)).astype(np.float32)
    small = {"model.widths": (4,), "stopping": "Off", "stopping.epochs": 3, "batches.size": 8, "model.dropout": 0.25}
    given = {"optimiser": gw.HeavyBall(0.1), "set": small, "methods": ["ConjugateGradient"], "seeds": 1}
    study = gw.break_even(inputs, inputs[:, 0] > inputs[:, 1], budget="9s", **given)
    assert study.analysis.break_even.stochastic == "HeavyBall"
    assert study.analysis.break_even.batch == ("ConjugateGradient",)
    assert study.trials[-1].recipe.model.dropout == 0.25
    with pytest.raises(gw.RequestError, match=r"gw.break_even has no argument `method`.*methods"):
        gw.break_even(inputs, inputs[:, 0], method="Lbfgs")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--methods", "Lbgfs"), "Lbfgs"),
        (("--methods", ""), "--methods"),
        (("--folds", "3"), "unknown option --folds"),
        (("--set", "batches.size=64"), "holds all 36 training examples"),
    ],
)
def test_a_race_that_cannot_be_is_refused_in_one_line(words, says, table, gradwise):
    said = gradwise("break-even", "flowers.csv", "--target", "kind", *words, "--out", "mine")
    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert said.err.count("\n") == 1
    assert not Path("mine").exists()
