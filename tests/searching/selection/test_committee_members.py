"""Networks of a study as predictors: what they say is what they were judged by, and a committee of them is better."""

import dataclasses

import numpy as np
import pytest

from gradwise.evaluation.metrics import measure
from gradwise.runtime.errors import RequestError
from gradwise.searching.running.evaluation_data import EvaluationData
from gradwise.searching.selection.committee_members import (
    Scalers,
    indistinct,
    make_committee,
    member_scores,
    on_device,
    setting_of,
    together,
)
from gradwise.searching.storage.network_store import TrainedTrial
from gradwise.specs.adapters import as_criterion
from tests.searching.small_study import data_of, diabetes, digits, recipe_at, run, run_folds

SEEDS = 5


@pytest.fixture(scope="module")
def data() -> EvaluationData:
    return data_of(digits())


@pytest.fixture(scope="module")
def seeds(data: EvaluationData) -> list[TrainedTrial]:
    return run(data, [recipe_at()] * SEEDS)[1]


@pytest.mark.slow
def test_a_committee_beats_its_mean_member(data: EvaluationData, seeds: list[TrainedTrial]) -> None:
    """On the test part: the log-loss by its convexity, before the committee's own temperature; here the error too."""
    assert data.test is not None
    committee = dataclasses.replace(make_committee(seeds, data), temperature=1.0)
    assert len(committee.members) == SEEDS

    def of(predictor: object, metric: str) -> float:
        predictions = predictor.predict(data.test.inputs)  # type: ignore[attr-defined, union-attr]
        return measure(data.test.task, predictions, data.test.targets, None)[metric]  # type: ignore[union-attr]

    alone = {name: float(np.mean([of(m, name) for m in committee.members])) for name in ("log_loss", "error_rate")}
    assert of(committee, "log_loss") < alone["log_loss"]
    assert of(committee, "error_rate") < alone["error_rate"]


def test_a_member_is_what_was_judged(data: EvaluationData, seeds: list[TrainedTrial]) -> None:
    """Its errors on the validation part are those that the search counted."""
    committee = make_committee(seeds, data)
    for kept, member in zip(seeds, committee.members, strict=True):
        wrong = member.predict(data.valid.inputs).argmax(1) != data.valid.targets
        np.testing.assert_array_equal(wrong, kept.scores > 0.5)


def test_the_temperature_is_fitted_on_validation_examples(data: EvaluationData, seeds: list[TrainedTrial]) -> None:
    committee, judged, part = together(seeds, data, Scalers(data))
    assert part is data.valid
    np.testing.assert_allclose(judged, committee.predict(data.valid.inputs), rtol=1e-5)

    def loss(temperature: float) -> float:
        predictions = dataclasses.replace(committee, temperature=temperature).predict(part.inputs)
        return measure(part.task, predictions, part.targets, None)["log_loss"]

    best = committee.temperature
    assert loss(best) <= min(loss(best * 1.05), loss(best / 1.05), loss(1.0))


def test_scores_on_the_device_are_those_of_the_search(data: EvaluationData, seeds: list[TrainedTrial]) -> None:
    """The function that scores the test part, asked about the validation part, says what the search said."""
    swapped = dataclasses.replace(data, test=data.valid)
    part = Scalers(swapped).test(seeds[0].recipe, seeds[0].variants[0])
    criterion = on_device(as_criterion(seeds[0].recipe.criterion))
    for kept in seeds:
        np.testing.assert_array_equal(member_scores(criterion, on_device(kept.networks[0]), part), kept.scores)


def test_scores_are_counted_by_their_weights(seeds: list[TrainedTrial]) -> None:
    data = data_of(digits(), metric="balanced_error_rate")
    assert data.test is not None
    scalers = Scalers(data)
    kept = seeds[0]
    scores = member_scores(
        on_device(as_criterion(kept.recipe.criterion)),
        on_device(kept.networks[0]),
        scalers.test(kept.recipe, kept.variants[0]),
    )
    predictions = make_committee(seeds[:1], data).predict(data.test.inputs)
    balanced = measure(data.test.task, predictions, data.test.targets, None)["balanced_error_rate"]
    assert scores.mean() == pytest.approx(balanced, rel=1e-5)


@pytest.mark.parametrize(("kind", "word"), [("bagging", "bag"), ("inputs", "inputs")])
def test_bags_and_input_subsets_are_committees_too(data: EvaluationData, kind: str, word: str) -> None:
    variants = [(word, 0), (word, 1)]
    kept = run(data, [recipe_at()] * 2, variants=variants)[1]
    committee = make_committee(kept, data, kind)
    for one, member in zip(kept, committee.members, strict=True):
        wrong = member.predict(data.valid.inputs).argmax(1) != data.valid.targets
        np.testing.assert_array_equal(wrong, one.scores > 0.5)
    if kind == "inputs":
        row = data.valid.inputs[:1] + 0.0
        hidden = np.flatnonzero(committee.members[0].scaler.seen == 0)  # type: ignore[attr-defined]
        assert len(hidden) == 64 - round(0.7 * 64)
        other = row.copy()
        other[:, hidden] += 5.0
        np.testing.assert_array_equal(committee.members[0].predict(other), committee.members[0].predict(row))
        assert not np.array_equal(committee.members[1].predict(other), committee.members[1].predict(row))


@pytest.mark.slow
def test_with_folds_each_example_is_judged_by_the_network_that_did_not_see_it() -> None:
    data = data_of(digits(200), folds=2)
    kept = run_folds(data, recipe_at(), 0)[1]
    committee, judged, part = together([kept], data, Scalers(data))
    assert len(committee.members) == 2
    assert part is data.pool
    mean = np.empty_like(judged)
    for member, variant in zip(committee.members, kept.variants, strict=True):
        rows = data.judged_rows(variant)
        mean[rows] = member.predict(data.pool.inputs[rows])
    np.testing.assert_allclose(judged, committee.tempered(mean), rtol=1e-5)
    np.testing.assert_array_equal(judged.argmax(1) != data.pool.targets, kept.scores > 0.5)


def _judged(kept: TrainedTrial, number: int, rate: float, wrong: int, count: int = 400) -> TrainedTrial:
    scores = (np.arange(count) < wrong).astype(np.float32)
    recipe = recipe_at(rate)
    return dataclasses.replace(kept, number=number, recipe=recipe, score=wrong / count, scores=scores)


def test_contenders_are_of_different_settings_that_validation_cannot_tell_apart(
    data: EvaluationData, seeds: list[TrainedTrial]
) -> None:
    first = seeds[0]
    rows = [
        _judged(first, 0, 0.3, 200),  # half wrong: it cannot be the best
        _judged(first, 1, 0.1, 42),
        _judged(first, 2, 0.1, 44),  # the setting of the one before
        _judged(first, 3, 0.2, 40),
    ]
    assert [kept.number for kept in indistinct(rows)] == [3, 1]
    many = [_judged(first, number, 0.1 + number / 100, 40 + number) for number in range(9)]
    assert [kept.number for kept in indistinct(many)] == [0, 1, 2, 3, 4]
    assert len(make_committee(rows, data, "contenders").members) == 2


def test_numbers_come_in_their_own_units() -> None:
    data = data_of(diabetes(), metric="rmse")
    kept = run(data, [recipe_at(0.02, dataset=data.train)] * 2)[1]
    committee, judged, part = together(kept, data, Scalers(data))
    np.testing.assert_allclose(judged, committee.predict(part.inputs), rtol=1e-6)
    unit = float(data.units[1][0])
    for one, member in zip(kept, committee.members, strict=True):
        rmse = measure(part.task, member.predict(part.inputs), part.targets, None)["rmse"]
        assert rmse == pytest.approx(unit * np.sqrt(one.score), rel=1e-4)
    together_rmse = measure(part.task, judged, part.targets, None)["rmse"]
    assert together_rmse**2 <= np.mean([unit**2 * one.score for one in kept])
    assert np.std(part.targets) * 0.6 < together_rmse < np.std(part.targets)


def test_a_setting_is_every_choice_of_a_recipe() -> None:
    assert setting_of(recipe_at(0.1)) == setting_of(recipe_at(0.1))
    assert setting_of(recipe_at(0.1)) != setting_of(recipe_at(0.11))
    assert setting_of(recipe_at(0.1)) != setting_of(recipe_at(0.1, epochs=7.0))


def test_what_cannot_be_is_refused(data: EvaluationData, seeds: list[TrainedTrial]) -> None:
    with pytest.raises(RequestError, match="no trial saved a network"):
        make_committee([], data)
    with pytest.raises(RequestError, match="Did you mean"):
        make_committee(seeds, data, "baging")
