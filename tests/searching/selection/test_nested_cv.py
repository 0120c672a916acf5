"""Double cross-validation: the whole procedure anew for each fold, each example judging once."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from gradwise.data.splits import deal_folds
from gradwise.evaluation.trials.selection_bias import nested_estimate
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError
from gradwise.searching.selection.nested_cv import cross_validate_procedure, is_small
from gradwise.specs.dataset import Classes, Dataset, Numbers

KEY = jax.random.key(3)


def _iris() -> Dataset:
    from sklearn.datasets import load_iris

    data, target = load_iris(return_X_y=True)
    return Dataset(data, target, Classes(np.array(["setosa", "versicolor", "virginica"])))


class _Neighbours:
    """A procedure with a choice inside: the number of neighbours, by cross-validation on what it is given."""

    def __init__(self, train: Dataset):
        from sklearn.model_selection import GridSearchCV
        from sklearn.neighbors import KNeighborsClassifier

        found = GridSearchCV(KNeighborsClassifier(), {"n_neighbors": [1, 5, 25]}, cv=3)
        self.model = found.fit(train.inputs, train.targets)

    def predict(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.predict_proba(rows))


def test_it_is_a_naive_loop_over_outer_folds() -> None:
    dataset = _iris()
    seen: list[tuple[int, Dataset]] = []

    def learn(train: Dataset, number: int) -> _Neighbours:
        seen.append((number, train))
        return _Neighbours(train)

    found = cross_validate_procedure(dataset, 5, learn, key=KEY)
    values, sizes = [], []
    for others, own in deal_folds(dataset, 5, key=keys.named(KEY, "outer folds")):
        model = _Neighbours(dataset.take(others)).model
        values.append(float(np.mean(model.predict(dataset.inputs[own]) != dataset.targets[own])))
        sizes.append(len(own))
    expected = nested_estimate(values, sizes)
    assert list(found.values) == values
    assert found.metric == "error_rate"
    assert found.mean == pytest.approx(expected.mean)
    assert found.interval == pytest.approx((max(0.0, expected.low), expected.high))
    assert [number for number, _ in seen] == [0, 1, 2, 3, 4]


def test_no_procedure_sees_the_examples_that_judge_it() -> None:
    dataset = _iris()
    judged: list[np.ndarray] = []

    class Spy:
        def __init__(self, train: Dataset):
            assert train.test is None
            assert train.rows is not None
            self.rows = set(train.rows.tolist())

        def predict(self, rows: np.ndarray) -> np.ndarray:
            own = set(range(len(dataset))) - self.rows
            np.testing.assert_array_equal(rows, dataset.inputs[sorted(own)])
            judged.append(np.array(sorted(own)))
            return np.eye(3)[np.zeros(len(rows), int)]

    given = dataclasses.replace(dataset, test=dataset.take(np.arange(9)))
    found = cross_validate_procedure(given, 4, lambda train, number: Spy(train), key=KEY)
    np.testing.assert_array_equal(np.sort(np.concatenate(judged)), np.arange(len(dataset)))
    assert found.mean == pytest.approx(2 / 3)


def test_groups_stay_together() -> None:
    dataset = dataclasses.replace(_iris(), groups=np.arange(150) // 10)

    class Spy:
        def __init__(self, train: Dataset):
            assert train.groups is not None
            assert len(train) == 10 * len(np.unique(train.groups))

        def predict(self, rows: np.ndarray) -> np.ndarray:
            return np.eye(3)[np.zeros(len(rows), int)]

    assert len(cross_validate_procedure(dataset, 3, lambda train, number: Spy(train), key=KEY).values) == 3


def test_folds_that_were_measured_are_not_learned_again() -> None:
    dataset = _iris()
    whole = cross_validate_procedure(dataset, 3, lambda train, number: _Neighbours(train), key=KEY)
    known = dict(enumerate(whole.values[:2]))
    learned: list[int] = []
    told: list[tuple[int, float]] = []

    def learn(train: Dataset, number: int) -> Any:
        learned.append(number)
        return _Neighbours(train)

    again = cross_validate_procedure(
        dataset, 3, learn, key=KEY, known=known, watch=lambda number, value: told.append((number, value))
    )
    assert learned == [2]
    assert again == whole
    assert told == list(enumerate(whole.values))


def test_numbers_are_measured_by_their_own_metric() -> None:
    x = np.random.default_rng(0).normal(size=(60, 1))
    dataset = Dataset(x, 3.0 * x, Numbers())

    class Twice:
        def predict(self, rows: np.ndarray) -> np.ndarray:
            return 2.0 * rows

    found = cross_validate_procedure(dataset, 3, lambda train, number: Twice(), key=KEY)
    expected = [np.sqrt(np.mean(x[own] ** 2)) for _, own in deal_folds(dataset, 3, key=keys.named(KEY, "outer folds"))]
    assert found.metric == "rmse"
    assert found.values == pytest.approx(expected)
    r2 = cross_validate_procedure(dataset, 3, lambda train, number: Twice(), key=KEY, metric="r2")
    assert r2.interval[1] <= 1.0
    with pytest.raises(RequestError, match="unknown metric `error_rate` for numbers"):
        cross_validate_procedure(dataset, 3, lambda train, number: Twice(), key=KEY, metric="error_rate")


def _rows(count: int, **about: Any) -> Dataset:
    return Dataset(np.zeros((count, 1)), np.zeros((count, 1)), Numbers(), **about)


def test_a_set_is_small_where_a_test_part_says_little() -> None:
    assert is_small(_rows(1245))
    assert not is_small(_rows(1250))
    assert is_small(_rows(1250), test=0.1)
    assert not is_small(_rows(100, test=_rows(250)))  # an official test set that is large enough
    assert is_small(_rows(10_000, test=_rows(200)))
    assert not is_small(_rows(100, times=np.arange(100)))  # the future cannot be dealt at random


def test_rows_without_a_target_teach_every_fold_and_judge_none() -> None:
    dataset = _iris()
    blind = np.arange(150) % 3 == 0
    partly = dataclasses.replace(dataset, targets=np.where(blind, -1, dataset.targets))
    told = dataset.take(np.flatnonzero(~blind))

    def learn(train: Dataset, number: int) -> _Neighbours:
        assert not train.labelled[np.isin(train.rows, np.flatnonzero(blind))].any()  # type: ignore[arg-type]
        assert (~train.labelled).sum() == blind.sum()
        return _Neighbours(train.take(np.flatnonzero(train.labelled)))

    found = cross_validate_procedure(partly, 5, learn, key=KEY)
    expected = cross_validate_procedure(told, 5, lambda train, number: _Neighbours(train), key=KEY)
    assert found == expected
    many = Dataset(np.zeros((2000, 1)), np.where(np.arange(2000) < 500, 0, -1), Classes(np.arange(2)))
    assert is_small(many)
    assert not is_small(dataclasses.replace(many, targets=np.zeros(2000, int)))
