"""The ground of a study: the same parts for everybody, folds that deal each row once, and the level of chance."""

import dataclasses
import pickle

import numpy as np
import pytest

from gradwise.criteria.semi_supervised import SemiSupervised
from gradwise.data.category_scaling import OneHot
from gradwise.data.scaling import Standardise
from gradwise.data.splits import HoldOut
from gradwise.evaluation.metrics import BALANCED
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError
from gradwise.searching.running.evaluation_data import WHOLE, EvaluationData, SelectedInputs
from gradwise.specs.dataset import Classes, Column, Dataset, InputLayout, Labels, Numbers

ROWS = 100
DRAW = np.random.default_rng(0)
INPUTS = DRAW.normal(size=(ROWS, 10))
CLASS = np.repeat([0, 1, 2], [60, 30, 10])


def data(targets: np.ndarray = CLASS, task: object = None, **more: object) -> Dataset:
    """Rows whose first input is their number, so that every part tells where it came from."""
    inputs = INPUTS.copy()
    inputs[:, 0] = np.arange(ROWS)
    columns = tuple(Column(f"c{place}") for place in range(10))
    return Dataset(inputs, targets, task or Classes(np.arange(3)), columns, **more)  # type: ignore[arg-type]


def evaluation_data(
    dataset: Dataset | None = None, *, seed: int = 0, metric: str = "error_rate", **options: object
) -> EvaluationData:
    split = HoldOut(0.2, 0.2)
    return EvaluationData.of(dataset or data(), split, metric=metric, key=keys.from_seed(seed), **options)  # type: ignore


def rows(part: Dataset) -> list[int]:
    return part.inputs[:, 0].astype(int).tolist()


# --- parts


def test_one_key_gives_one_division_and_another_another() -> None:
    first, second, other = evaluation_data(), evaluation_data(), evaluation_data(seed=1)
    for name in ("train", "valid", "test"):
        assert rows(getattr(first, name)) == rows(getattr(second, name))
        assert rows(getattr(first, name)) != rows(getattr(other, name))
    assert first.test is not None
    assert sorted(rows(first.train) + rows(first.valid) + rows(first.test)) == list(range(ROWS))


def test_it_travels_to_other_processes_with_its_key() -> None:
    here = evaluation_data(folds=3)
    there = pickle.loads(pickle.dumps(here))
    assert there.words == here.words
    assert there.key == keys.from_seed(0)
    for number in range(3):
        assert rows(there.parts(("fold", number))[1]) == rows(here.parts(("fold", number))[1])


def test_without_folds_a_trial_is_one_training() -> None:
    whole = evaluation_data()
    assert whole.variants == (WHOLE,)
    assert whole.judged is whole.valid
    assert whole.judged_rows(WHOLE).tolist() == list(range(20))
    assert whole.parts() == (whole.train, whole.valid)


def test_folds_deal_each_row_of_the_pool_once() -> None:
    folded = evaluation_data(folds=4)
    assert folded.variants == tuple(("fold", number) for number in range(4))
    assert folded.test is not None
    pool = rows(folded.pool)
    assert sorted(pool) == sorted(rows(folded.train) + rows(folded.valid))
    assert folded.judged is folded.pool
    judged = []
    for variant in folded.variants:
        train, valid = folded.parts(variant)
        assert sorted(rows(train) + rows(valid)) == sorted(pool)
        assert not set(rows(train)) & set(rows(folded.test))
        assert [pool[row] for row in folded.judged_rows(variant)] == rows(valid)
        judged += rows(valid)
        assert np.bincount(valid.targets, minlength=3)[2] == 2  # rare classes are dealt as well
    assert sorted(judged) == sorted(pool)


def test_folds_of_uneven_sizes_are_made_alike_so_that_they_share_a_program() -> None:
    """80 rows in 3 folds: the smallest gets an example that counts nothing, the larger training parts lose one."""
    folded = evaluation_data(folds=3)
    pool, judged = rows(folded.pool), []
    for variant in folded.variants:
        train, valid = folded.parts(variant)
        own = folded.judged_rows(variant)
        assert (len(train), len(valid)) == (53, 27)
        assert not set(rows(train)) & set(rows(valid))
        assert rows(valid)[: len(own)] == [pool[row] for row in own]
        assert valid.weights is not None
        assert valid.weights.tolist() == [1.0] * len(own) + [0.0] * (27 - len(own))
        judged += rows(valid)[: len(own)]
    assert sorted(judged) == sorted(pool)


def test_a_bag_is_drawn_again_from_the_training_part() -> None:
    bags = [evaluation_data().parts(("bag", number)) for number in (0, 1, 0)]
    (first, valid), (second, _), (again, _) = bags
    assert rows(first) == rows(again) != rows(second)
    assert len(first) == len(evaluation_data().train)
    assert set(rows(first)) < set(rows(evaluation_data().train))
    share = len(set(rows(first))) / len(first)
    assert 0.5 < share < 0.77  # 1 - 1/e of them, on average
    assert rows(valid) == rows(evaluation_data().valid)


def test_a_subset_of_inputs_hides_the_others() -> None:
    here = evaluation_data()
    scaler, other = (here.scaler(Standardise(), ("inputs", number)) for number in (0, 1))
    seen = np.asarray(scaler.seen)
    assert seen.sum() == 7
    assert not np.array_equal(seen, other.seen)
    plain, hidden = (one.apply(here.valid.inputs) for one in (here.scaler(Standardise()), scaler))
    np.testing.assert_array_equal(hidden, plain * seen)
    assert "this network uses 7 of 10 inputs." in scaler.describe()
    np.testing.assert_allclose(scaler(here.valid.inputs[0]), hidden[0], atol=1e-6)  # and so it does in JAX
    flags = SelectedInputs(OneHot().fit(np.array([[0.0], [1.0]])), np.array([1.0, 0.0]))
    assert flags.layout((2,)) == InputLayout(numbers=0, flags=2)


# --- examples


def test_scalers_are_fitted_on_what_a_variant_learns_from() -> None:
    """Means of the training part alone: those of a fold, not of the whole."""
    folded = evaluation_data(folds=4)
    for variant in (WHOLE, *folded.variants):
        train, valid = folded.parts(variant)
        placed, judged = folded.place(Standardise(), variant)
        np.testing.assert_allclose(np.asarray(placed.inputs).mean(0), 0.0, atol=1e-5)
        mean, deviation = train.inputs.mean(0), train.inputs.std(0)
        np.testing.assert_allclose(judged.inputs, (valid.inputs - mean) / deviation, atol=1e-4)
        assert np.asarray(judged.targets).tolist() == valid.targets.tolist()


def test_numbers_are_in_the_units_of_the_training_part() -> None:
    values = 5.0 + 3.0 * INPUTS[:, 1:2]
    numbers = evaluation_data(data(values, Numbers()), metric="rmse")
    mean, deviation = numbers.units
    assert (mean[0], deviation[0]) == (pytest.approx(numbers.train.targets.mean()), numbers.train.targets.std())
    train, valid = numbers.place(Standardise())
    np.testing.assert_allclose(valid.targets, (numbers.valid.targets - mean) / deviation, rtol=1e-5)
    assert np.asarray(train.targets).std() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("metric", sorted(BALANCED))
def test_weights_follow_the_metric_and_the_classes(metric: str) -> None:
    plain, balanced = evaluation_data(), evaluation_data(metric=metric)
    assert plain.place(Standardise())[1].weights is None
    train, valid = balanced.place(Standardise())
    assert train.weights is None  # judged by class, not trained so
    weights, targets = np.asarray(valid.weights), np.asarray(valid.targets)
    sums = [weights[targets == label].sum() for label in range(3)]
    np.testing.assert_allclose(sums, len(targets) / 3, rtol=1e-5)
    both = evaluation_data(class_weight="balanced").place(Standardise())
    assert all(one.weights is not None for one in both)


# --- the level of chance


def test_chance_of_classes_is_the_most_frequent_one_and_the_shares() -> None:
    here = evaluation_data()
    assert here.chance("error") == pytest.approx(np.mean(here.valid.targets != 0))
    shares = (np.bincount(here.train.targets) + 1) / (60 + 3)
    assert here.chance("loss") == pytest.approx(-np.log(shares)[here.valid.targets].mean())
    assert evaluation_data(metric="balanced_error_rate").chance("error") == pytest.approx(2 / 3)
    folded = evaluation_data(folds=4)
    assert folded.chance("error") == pytest.approx(np.mean(folded.pool.targets != 0))


def test_chance_weighs_examples_as_validation_does() -> None:
    weights = np.where(CLASS == 0, 1.0, 3.0)
    here = evaluation_data(data(weights=weights))
    expected = np.average(here.valid.targets != 0, weights=here.valid.weights)
    assert here.chance("error") == pytest.approx(expected)
    assert here.chance("error") > evaluation_data().chance("error")


def test_chance_of_numbers_is_their_mean() -> None:
    here = evaluation_data(data(np.stack([INPUTS[:, 1], 9.0 * INPUTS[:, 2]], 1), Numbers(("a", "b"))), metric="rmse")
    errors = (here.valid.targets - here.train.targets.mean(0)) / here.train.targets.std(0)
    assert here.chance("squared") == pytest.approx((errors**2).mean())
    assert here.chance("absolute") == pytest.approx(np.abs(errors).mean())


def test_chance_of_labels_is_label_by_label() -> None:
    targets = (INPUTS[:, :3] > np.array([-1.0, 0.0, 9.0])).astype(int)
    here = evaluation_data(data(targets, Labels(("a", "b", "c"))))
    guess = here.train.targets.mean(0) > 0.5
    assert here.chance("error") == pytest.approx(np.mean(here.valid.targets != guess))
    assert np.isfinite(here.chance("loss"))  # the third label was never seen
    assert here.chance("loss") > 0


def test_no_test_part_is_no_hindrance() -> None:
    here = EvaluationData.of(data(), HoldOut(0.2, 0.0), metric="error_rate", key=keys.from_seed(0))
    assert here.test is None
    assert len(dataclasses.replace(here, folds=2).pool) == ROWS


# --- examples without a target

BLIND = np.arange(ROWS) % 5 == 0  # 20 rows


def partly(folds: int = 1) -> EvaluationData:
    return evaluation_data(data(np.where(BLIND, -1, CLASS)), criterion=SemiSupervised(), folds=folds)


def test_examples_without_a_target_are_in_every_training_part_and_in_no_other() -> None:
    here, folded = partly(), partly(folds=4)
    blind = set(np.flatnonzero(BLIND))
    assert here.test is not None
    assert here.untold is not None
    assert set(rows(here.untold)) == blind
    assert sorted(rows(here.told) + rows(here.untold)) == sorted(rows(here.train))
    for part in (here.valid, here.test, here.pool, folded.judged):
        assert not set(rows(part)) & blind
    judged = []
    for variant in folded.variants:
        train, valid = folded.parts(variant)
        assert blind <= set(rows(train))
        assert sorted(set(rows(train)) - blind | set(rows(valid))) == sorted(rows(folded.pool))
        assert [rows(folded.pool)[row] for row in folded.judged_rows(variant)] == rows(valid)
        placed, _ = folded.place(Standardise(), variant)
        assert int((placed.targets == -1).sum()) == 20
        judged += rows(valid)
    assert sorted(judged) == sorted(rows(folded.pool))
    assert evaluation_data().untold is None
    assert evaluation_data().told is not here.told


def test_chance_is_that_of_the_labelled() -> None:
    here = partly()
    shares = (np.bincount(here.told.targets) + 1) / (len(here.told) + 3)
    assert here.chance("loss") == pytest.approx(-np.log(shares)[here.valid.targets].mean())
    assert here.chance("error") == pytest.approx(np.mean(here.valid.targets != 0))


def test_without_a_word_every_row_needs_a_target() -> None:
    with pytest.raises(RequestError, match="missing in 20 of 100 rows, first in data row 1"):
        evaluation_data(data(np.where(BLIND, -1, CLASS)))
