"""`search` from end to end on real, small problems: a pure learning algorithm with no knob left but the budget."""

import dataclasses
import json
import math
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

import gradwise
from gradwise.models.activations import Rectifier
from gradwise.models.centred_mlp import CentredMlp
from gradwise.optimisers.adaptive.adam import Adam, AdamW
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.optimisers.wrappers.recentred import Recentred
from gradwise.records.study import Study
from gradwise.records.study_files import read_study, write_study
from gradwise.records.trial import best_of
from gradwise.reporting.captioned_figures.study_figures import short_run_figures
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError, WorkError
from gradwise.searching.comparison.cheap_recipes import random_lower_layers, train_all_layers
from gradwise.searching.running.driver import Driver
from gradwise.searching.running.population_size import Given
from gradwise.searching.search import SearchPlan, StudyOptions, run_study
from gradwise.searching.storage.budget import Budget
from gradwise.searching.storage.network_store import Contenders
from gradwise.searching.strategies.contract import AbstractStrategy
from gradwise.searching.strategies.grid import Grid
from gradwise.searching.strategies.random_search import Random
from gradwise.searching.strategies.recommended import Recommended
from gradwise.searching.strategies.successive_halving import SuccessiveHalving
from gradwise.specs.contracts import AbstractOptimiser
from gradwise.specs.dataset import Classes, Column, Dataset
from gradwise.specs.priors import Choice, LogInteger, LogUniform, ZeroOr
from gradwise.specs.search_space import Space, dimension, write_at
from gradwise.training.stopping import Off
from tests.searching import small_study

KEY = keys.from_seed(1)
RATE = "optimiser.learning_rate"
BARE = SearchPlan(folds=1, finalists=0, refine=False, borders=False)


def blobs(count: int = 240) -> Dataset:
    """Three clouds that overlap a little."""
    draw = np.random.default_rng(0)
    targets = draw.integers(0, 3, count)
    inputs = np.random.default_rng(1).normal(size=(3, 4))[targets] * 1.5 + draw.normal(size=(count, 4))
    return Dataset(inputs, targets, Classes(np.array(["a", "b", "c"])), tuple(Column(f"c{n}") for n in range(4)))


BLOBS = blobs()


def space_of(
    low: float = 1e-3, high: float = 1.0, *, widths: bool = False, dataset: Dataset = BLOBS, epochs: float = 4.0
) -> Space:
    recipe = small_study.recipe_at(dataset=dataset, epochs=epochs)
    dimensions = [dimension(recipe, RATE, LogUniform(low, high))]
    if widths:
        dimensions.append(dimension(recipe, "model.widths.each", LogInteger(3, 12)))
    return Space(recipe, tuple(dimensions))


def run(
    space: Space | None = None,
    dataset: Dataset = BLOBS,
    *,
    trials: int = 6,
    plan: SearchPlan = BARE,
    strategy: AbstractStrategy = Random(),
    budget: Budget | None = None,
    metric: str | None = None,
    **options: Any,
) -> Study:
    """A search in this process, four networks at once."""
    given = StudyOptions(on="here", **{"slots": Given(4), **options})
    chosen = budget or Budget(trials=trials)
    return run_study(
        space or space_of(), dataset, strategy=strategy, budget=chosen, key=KEY, metric=metric, plan=plan, options=given
    )


def told(study: Study) -> list[tuple[Any, ...]]:
    return [(t.number, t.values, t.outcome, t.phase, t.score, t.loss, t.best_age) for t in study.trials]


def assert_same(one: Study, other: Study) -> None:
    """The same trials, with scores equal as far as two populations may differ."""
    assert [(t.number, t.values, t.outcome, t.phase) for t in one.trials] == [
        (t.number, t.values, t.outcome, t.phase) for t in other.trials
    ]
    np.testing.assert_allclose([t.score for t in one.trials], [t.score for t in other.trials], atol=1e-3)
    np.testing.assert_allclose([t.loss for t in one.trials], [t.loss for t in other.trials], atol=1e-3)


@pytest.fixture(scope="module")
def eight() -> Study:
    """Eight random trials of rate and width."""
    return run(space_of(widths=True), trials=8)


class Killed(Exception):
    """Stands for a signal that nobody can catch."""


def kill_after(count: int) -> Callable[[dict[str, Any]], None]:
    def watch(line: dict[str, Any]) -> None:
        if line["done"] >= count:
            raise Killed

    return watch


# --- trials


@pytest.mark.slow
def test_so_many_trials_numbered_as_proposed(eight: Study) -> None:
    assert [trial.number for trial in eight.trials] == list(range(8))
    assert {trial.phase for trial in eight.trials} == {"search"}
    assert (eight.outcome, eight.strategy, eight.independent) == ("finished", "Random", True)
    assert len({trial.values["model.widths.each"] for trial in eight.trials}) > 2
    assert eight.best is not None
    assert eight.best.score < 0.7 * eight.chance
    assert all(trial.seconds > 0 for trial in eight.trials)


@pytest.mark.slow
def test_the_same_search_again_is_the_same_study(eight: Study) -> None:
    assert told(run(space_of(widths=True), trials=8)) == told(eight)
    assert_same(run(space_of(widths=True), trials=8, slots=Given(1)), eight)  # whoever trains beside


@pytest.mark.parametrize("count", [1, 4])
def test_a_study_that_was_killed_ends_as_it_would_have(eight: Study, tmp_path: Path, count: int) -> None:
    """Rows E16 and E17: after the kill the journal has what ended, and going on gives the uninterrupted study."""
    space = space_of(widths=True)
    with pytest.raises(Killed):
        run(space, trials=8, folder=tmp_path, watch=kill_after(count))
    lines: list[dict[str, Any]] = []
    study = run(space, trials=8, folder=tmp_path, resume=True, watch=lines.append)
    assert_same(study, eight)
    assert lines[0]["done"] >= count  # it did not begin anew
    again: list[dict[str, Any]] = []
    assert_same(run(space, trials=8, folder=tmp_path, resume=True, watch=again.append), eight)
    assert again == []  # a finished study is not run again


def test_more_trials_extend_a_study(eight: Study, tmp_path: Path) -> None:
    space = space_of(widths=True)
    first = run(space, trials=4, folder=tmp_path)
    assert len(first.trials) == 4
    more = run(space, budget=Budget(trials=4, more=True), folder=tmp_path, resume=True)
    assert_same(more, eight)


def test_another_study_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    run(trials=1, folder=tmp_path)
    with pytest.raises(RequestError, match="already"):
        run(trials=1, folder=tmp_path)
    with pytest.raises(RequestError, match="another range"):
        run(space_of(1e-2, 1.0), trials=1, folder=tmp_path, resume=True)


def test_an_interrupted_search_is_concluded(tmp_path: Path) -> None:
    """Ctrl-C: what there is is judged and told; the study can go on."""

    def watch(line: dict[str, Any]) -> None:
        if line["done"] == 3:
            signal.raise_signal(signal.SIGINT)

    plan = dataclasses.replace(BARE, finalists=1, seeds=2)
    study = run(trials=40, folder=tmp_path, watch=watch, slots=Given(1), plan=plan)
    assert study.outcome == "interrupted"
    assert 3 <= len(study.trials) < 40
    assert not [trial for trial in study.trials if trial.phase == "finalist"]
    assert study.winner
    assert study.predictor is not None
    np.testing.assert_allclose(study.predictor.predict(BLOBS.inputs[:9]).sum(1), 1.0, atol=1e-5)


# --- time


def test_a_budget_too_small_for_one_trial_runs_one_and_says_so() -> None:
    study = run(budget=Budget(seconds=1e-9))
    assert [(trial.number, trial.outcome) for trial in study.trials] == [(0, "finished")]
    (said,) = [finding for finding in study.findings if finding.row == "E1"]
    assert "ran out before a trial had ended" in said.what
    assert study.predictor is not None


@pytest.mark.slow
def test_a_budget_of_time_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that a test turns: a look at it costs a second, of a hundred that there are."""
    clock = iter(range(10**6))
    seen: list[int] = []

    def seconds(driver: Driver) -> float:
        seen.append(next(clock))
        return float(seen[-1])

    monkeypatch.setattr(Driver, "seconds", property(seconds))
    plan = SearchPlan(folds=1, finalists=1, seeds=2, stop_early=False, committee="seeds")
    study = run(budget=Budget(seconds=100.0), plan=plan)
    assert study.outcome == "finished"
    assert len(study.searched) >= 2
    assert {"search", "finalist"} <= {trial.phase for trial in study.trials}
    assert seen[-1] < 130  # no phase began after the end


# --- the rest of the journey


def test_the_border_is_followed_unattended() -> None:
    """Rates far too low for plain gradient descent: the search says so, goes beyond, and does better (row E4)."""
    space = space_of(1e-3, 3e-2, epochs=20.0)
    study = run(space, trials=4, plan=dataclasses.replace(BARE, borders=True), strategy=Grid(values=4))
    inside, beyond = ([trial for trial in study.trials if trial.phase == phase] for phase in ("search", "border"))
    assert beyond
    assert study.asked[RATE].prior == LogUniform(1e-3, 3e-2)
    assert study.space[RATE].prior.high >= 0.3  # type: ignore[attr-defined]
    assert study.best in beyond
    assert study.best.values[RATE] > 3e-2  # type: ignore[union-attr]
    assert min(trial.score for trial in beyond) < min(trial.score for trial in inside) - 0.05
    said = [finding for finding in study.findings if finding.row == "E4"]
    assert any("is at the high end" in finding.what for finding in said)
    assert study.analysis.borders


def test_every_trial_diverging_gives_a_verdict() -> None:
    space = space_of(1e19, 1e20)
    model = dataclasses.replace(space.recipe.model, activation=Rectifier())
    study = run(Space(dataclasses.replace(space.recipe, model=model), space.dimensions), trials=5)
    assert {trial.outcome for trial in study.trials} == {"diverged"}
    assert study.best is None
    assert study.predictor is None
    (verdict,) = [finding for finding in study.findings if finding.level == "error"]
    assert "diverged" in verdict.what
    assert RATE in verdict.what
    assert math.isfinite(study.chance)


@pytest.mark.slow
def test_the_whole_journey_on_folds() -> None:
    """A small set: five folds judge a trial; then around the best, finalists with seeds, a committee, one test pass."""
    plan = SearchPlan(finalists=2, seeds=2, committee="seeds")
    study = run(trials=4, plan=plan)
    assert study.data.folds == 5
    phases = [trial.phase for trial in study.trials]
    assert phases.count("search") == 4
    assert phases.count("refine") >= 1
    assert phases.count("finalist") == 2  # a seed is a network for each fold: one of them gives five
    assert [trial.number for trial in study.trials] == list(range(len(phases)))
    assert study.winner.values[RATE] > 0
    assert 0 <= study.estimates.test < 0.6 * study.chance
    error = np.mean(study.predictor.predict(BLOBS.inputs).argmax(1) != BLOBS.targets)
    assert error < 0.6 * study.chance


def test_an_ensemble_is_weighed_by_rows_that_its_networks_did_not_see(tmp_path: Path) -> None:
    """The recommended recipe first; every row judged; the weights and the honest estimate made again by hand."""
    study = run(trials=4, plan=SearchPlan(), strategy=Recommended(), folder=tmp_path)
    assert study.data.folds == 8
    assert json.loads((tmp_path / "effort.json").read_text()) == {"folds": 8, "epochs": 1.0, "trials": 4}
    assert [trial.phase for trial in study.trials] == ["search"] * 4
    assert study.trials[0].recipe == space_of().recipe
    kept = Contenders(tmp_path).all()
    assert {one.number for one in kept} == {0, 1, 2, 3}
    pool = len(kept[0].scores)
    assert all(one.outputs.shape == (pool, 3) and len(one.networks) == 8 for one in kept)
    assert np.all([(one.outputs.argmax(1) != 0).any() for one in kept])
    weights = study.committee.weights
    assert sum(weights.values()) == pytest.approx(1.0)
    predictor = study.predictor
    assert len(predictor.members) == 8 * len(weights)
    assert np.isclose(sum(predictor.weights), 1.0)
    assert study.committee.honest < 0.6 * study.chance
    assert study.independent is False
    resumed = run(trials=4, plan=SearchPlan(), strategy=Recommended(), folder=tmp_path, resume=True)
    assert resumed.committee.weights == study.committee.weights
    (tmp_path / "effort.json").write_text("{")
    with pytest.raises(WorkError, match=r"effort.json is damaged"):
        run(trials=4, plan=SearchPlan(), strategy=Recommended(), folder=tmp_path, resume=True)


def test_a_short_search_tries_no_recipe_that_needs_another_program() -> None:
    """Another rate is a number to the program; another depth is another program."""
    space = space_of()
    faster, deeper = write_at(space.recipe, RATE, 0.7), write_at(space.recipe, "model.widths.count", 2)
    with_both = dataclasses.replace(space, portfolio=(deeper, faster))
    said: list[str] = []
    options = StudyOptions(say=said.append, on="here")
    short, long = (
        run_study(with_both, BLOBS, budget=Budget(trials=trials), key=KEY, plan=SearchPlan(folds=1), options=options)
        for trials in (3, 24)
    )
    assert [trial.recipe for trial in short.trials[:2]] == [space.recipe, faster]
    assert [trial.recipe for trial in long.trials[:3]] == [space.recipe, deeper, faster]
    assert long.trials[1].values["model.widths"] == "6×6"
    assert said[0].startswith("3 trials, one validation set")


def test_the_cheapest_trial_near_the_best_may_answer() -> None:
    """Sixteen units do on these digits what sixty-four do: they answer, and that is said."""
    dataset = small_study.digits(400)
    recipe = write_at(space_of(dataset=dataset, epochs=12.0).recipe, RATE, 0.5)
    space = Space(recipe, (dimension(recipe, "model.widths.each", Choice((4, 8, 16, 32, 64))),))
    plan = dataclasses.replace(BARE, committee="cheapest")
    study = run(space, dataset, trials=5, strategy=Grid(5), plan=plan)
    best = best_of(study.trials)
    error = math.sqrt(best.score * (1 - best.score) / (study.data.rows.valid - 1))
    near = [trial for trial in study.trials if trial.score <= best.score + error]
    chosen = min(near, key=lambda trial: trial.parameters)
    assert chosen.parameters < best.parameters
    assert study.winner.number == study.committee.setting == chosen.number
    (note,) = [finding.what for finding in study.findings if "was chosen over" in finding.what]
    assert note.startswith(f"trial {chosen.number} was chosen over trial {best.number}, the best")
    assert f"{chosen.parameters:,} parameters instead of {best.parameters:,}" in note


def test_short_runs_are_compared_with_full_ones_in_every_search_that_keeps_its_curves() -> None:
    dataset = small_study.digits(400)
    space = space_of(dataset=dataset, epochs=12.0)
    often = write_at(write_at(space.recipe, "stopping.least_examples", 100), "stopping.every_epochs", 1.0)
    study = run(dataclasses.replace(space, recipe=often), dataset, trials=8)
    found = study.analysis.short_runs
    longest = max(trial.age_examples for trial in study.trials)
    assert (found.full_age, found.ages[2]) == (longest, round(longest / 3))
    # By hand: the best score of each curve up to a third, against the score in the end.
    early = [
        min(s for age, s in zip(t.curve["age_examples"], t.curve["valid_score"], strict=True) if age <= longest / 3)
        for t in study.trials
    ]
    ends = [trial.score for trial in study.trials]
    assert found.correlations[2].value == pytest.approx(spearmanr(early, ends).statistic)
    assert found.sentence.startswith("runs of a third of the length rank 8 trials like full runs")
    (figure,) = short_run_figures(study)
    assert f"{found.correlations[2].value:.2f}" in figure.description


def test_halving_may_begin_with_random_lower_layers() -> None:
    """Its cheap trials keep the weights that they drew, its later ones train them, and both say what they chose."""
    strategy = SuccessiveHalving(least_examples=300, factor=2, most_examples=1200, random_layers=True)
    study = run(trials=12, strategy=strategy)
    cheap = [trial for trial in study.trials if trial.examples == 300]
    full = [trial for trial in study.trials if trial.continues is not None]
    assert cheap
    assert full
    assert all(random_lower_layers(train_all_layers(trial.recipe)) == trial.recipe for trial in cheap)
    by_number = {trial.number: trial for trial in cheap}
    for trial in full:
        assert trial.recipe == train_all_layers(by_number[trial.continues].recipe)
        assert trial.values == by_number[trial.continues].values
    assert all(set(trial.values) == {RATE} for trial in study.trials)
    assert study.analysis.short_runs.ages[0] == 300


@pytest.mark.parametrize("committee", ["ensemble", "seeds"])
def test_what_was_written_is_read_as_an_equal_record(tmp_path: Path, committee: str) -> None:
    study = run(trials=4, plan=dataclasses.replace(BARE, committee=committee, finalists=1, seeds=2))
    write_study(study, tmp_path)
    again = read_study(tmp_path)
    assert again == study
    assert again.summary() == study.summary()
    assert (again.estimates.test, again.committee.kind) == (study.estimates.test, committee)  # type: ignore[union-attr]
    assert again.predictor is None


def test_further_readings_of_the_test_part_are_counted_in_the_folder(tmp_path: Path) -> None:
    first = run(trials=2, folder=tmp_path)
    assert first.data.test_readings == 1
    write_study(first, tmp_path)
    second = run(trials=3, folder=tmp_path, resume=True)
    assert second.data.test_readings == 2
    assert any("the test set has been read twice" in finding.what for finding in second.findings)
    assert read_study(tmp_path).data.test_readings == 1


@pytest.mark.parametrize(("kind", "members"), [("best", 8), ("none", 1)])
def test_the_best_trial_or_one_of_its_networks_may_answer(kind: str, members: int) -> None:
    study = run(trials=2, plan=SearchPlan(committee=kind), strategy=Recommended())
    assert (study.committee.kind, study.committee.members) == (kind, members)
    assert study.estimates.test < 0.6 * study.chance


def test_scores_of_uneven_folds_are_those_of_their_examples(tmp_path: Path) -> None:
    """241 rows leave folds of unequal sizes: each example's score is still 0 or 1, and their mean is the trial's."""
    study = run(dataset=blobs(241), trials=2, plan=dataclasses.replace(BARE, folds=5), folder=tmp_path)
    found = Contenders(tmp_path).all()
    assert found
    for kept in found:
        np.testing.assert_allclose(kept.scores, np.round(kept.scores), atol=1e-5)
        assert kept.scores.mean() == pytest.approx(kept.score, abs=1e-6)
        assert kept.score == pytest.approx(study.trials[kept.number].score)


def test_absolute_errors_are_searched_and_shown_as_such() -> None:
    dataset = small_study.diabetes()
    space = space_of(dataset=dataset)
    followed = gradwise.defaults.following(space.recipe, "mae")
    study = run(Space(followed, space.dimensions), dataset, trials=3, metric="mae")
    assert study.scale.kind == "absolute"
    deviation = dataset.targets.std()
    assert study.unit == pytest.approx(deviation, rel=0.2)
    best = study.scale.shown(study.best.score)  # type: ignore[union-attr]
    assert 0.3 * deviation < best < deviation
    assert study.scale.shown(study.chance) == pytest.approx(
        np.abs(dataset.targets - dataset.targets.mean()).mean(), rel=0.2
    )


def test_a_space_without_a_dimension_is_refused() -> None:
    with pytest.raises(RequestError, match="the space has no dimension"):
        run(Space(space_of().recipe, ()))
    with pytest.raises(RequestError, match="unknown metric `rmse` for classes"):
        run(metric="rmse")


def test_an_optimiser_that_cannot_use_the_model_is_refused_before_the_first_trial(tmp_path: Path) -> None:
    recipe = dataclasses.replace(small_study.recipe_at(dataset=BLOBS, epochs=4.0), optimiser=Recentred(Sgd(0.1)))
    space = Space(recipe, (dimension(recipe, "optimiser.optimiser.learning_rate"),))
    with pytest.raises(RequestError, match="Recentred needs a network with `recentred`"):
        run_study(space, BLOBS, budget=Budget(trials=2), key=KEY, options=StudyOptions(folder=tmp_path / "study"))
    assert not (tmp_path / "study").exists()


def test_centred_networks_train_together_as_alone() -> None:
    """Rates and weight decay differ, and each network is centred again and again while it trains."""
    recipe = small_study.recipe_at(dataset=BLOBS, epochs=4.0)
    model, rule = CentredMlp(widths=(6, 6)), Recentred(Sgd(0.1), every_updates=3.0)
    recipe = dataclasses.replace(recipe, model=model, optimiser=rule)
    rate, decay = "optimiser.optimiser.learning_rate", "criterion.penalties.0.coefficient"
    ranges = {rate: LogUniform(0.01, 0.2), decay: ZeroOr(LogUniform(1e-3, 1.0))}
    space = Space(recipe, tuple(dimension(recipe, path, prior) for path, prior in ranges.items()))
    together = run(space, trials=4)
    assert {trial.outcome for trial in together.trials} == {"finished"}
    assert together.best.score < 0.6 * together.chance  # type: ignore[union-attr]
    assert_same(together, run(space, trials=4, slots=Given(1)))


@pytest.mark.slow
def test_a_search_of_a_wide_set_tries_overcomplete_first_layers() -> None:
    """Row D1: by itself, from the inputs that the set has."""
    draw = np.random.default_rng(0)
    targets = np.arange(60) % 2
    inputs = draw.normal(size=(60, 300)) + 0.5 * targets[:, None]
    wide = Dataset(inputs, targets, Classes(np.array(["a", "b"])), tuple(Column(f"c{n}") for n in range(300)))
    recipe = gradwise.defaults.classification(stopping=Off(epochs=2))
    space = gradwise.defaults.search_space(recipe, wide).only(("model.widths.count", "model.widths.each"))
    study = run(space, wide, trials=4, slots=Given(1))
    widths = [trial.recipe.model.widths for trial in study.trials]
    assert all(trial.ok for trial in study.trials)
    assert any(300 < several[0] <= 600 for several in widths)
    assert all(len(set(several)) == 1 for several in widths)
    assert study.best.score < 0.5 * study.chance  # type: ignore[union-attr]


@pytest.mark.parametrize(("optimiser", "notes"), [(Adam(), 1), (AdamW(decay=0.1), 2), (Sgd(0.1), 0)])
def test_a_study_says_which_decay_its_winner_has(optimiser: AbstractOptimiser, notes: int) -> None:
    """With Adam a penalty beside the loss is no decoupled decay; AdamW's own decay is another thing (row J1)."""
    penalised = write_at(space_of(epochs=2.0).recipe, "criterion.penalties.0.coefficient", np.float64(0.5))
    recipe = dataclasses.replace(penalised, optimiser=optimiser)
    study = run(Space(recipe, (dimension(recipe, RATE, LogUniform(1e-3, 1e-2)),)), trials=2)
    told = [one.what for one in study.findings if one.row == "J1"]
    assert len(told) == notes
    if notes:
        assert "`criterion.penalties.0.coefficient=0.5` is a penalty in the criterion" in told[-1]
        assert "decoupled decay" in told[-1]
    if notes == 2:
        assert "`decay=0.1` is AdamW's" in told[0]
