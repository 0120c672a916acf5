"""The importance of columns: what it is for models whose every column is known, and how much work it takes."""

import json
import math

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.inspection import permutation_importance

from gradwise.evaluation.importance import measure_importance
from gradwise.records.evidence.fit_evidence import FitEvidence, Importance
from gradwise.records.plain_values import from_values, to_values
from gradwise.specs.dataset import Classes, Column, Dataset, Numbers

DRAW = np.random.default_rng(0)
INPUTS = DRAW.normal(size=(400, 4))
SLOPES = np.array([1.0, 3.0, 0.0, 0.0])
NAMES = tuple(Column(name) for name in "abcd")


def table(rows: int = 400) -> Dataset:
    return Dataset(INPUTS[:rows], (INPUTS @ SLOPES)[:rows, None], Numbers(), NAMES)


def predict(rows: np.ndarray) -> np.ndarray:
    return (rows @ SLOPES)[:, None]


def found_of(data: Dataset, metric: str = "rmse", **options: float) -> Importance:
    found = measure_importance(predict, data, metric, part="test", **{"cost": 1e5, "seed": 0, **options})
    assert found is not None
    return found


def test_columns_are_in_the_order_of_what_they_do() -> None:
    found = found_of(table())
    assert [one.column for one in found.columns] == ["b", "a", "c", "d"]
    # Shuffled, a column of slope s and deviation 1 makes an error of s times the root of 2.
    rises = {one.column: one.rise for one in found.columns}
    assert rises["b"] == pytest.approx(3 * math.sqrt(2), rel=0.1)
    assert rises["a"] == pytest.approx(math.sqrt(2), rel=0.1)
    assert rises["c"] == rises["d"] == 0.0
    assert all(0 <= one.standard_error < 0.1 for one in found.columns)
    assert (found.rows, found.repeats) == (400, 5)


class _Known(RegressorMixin, BaseEstimator):
    def fit(self, X: np.ndarray, y: np.ndarray) -> "_Known":
        self.fitted_ = True
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return X @ SLOPES


def test_they_agree_with_scikit_learns() -> None:
    data = table()
    theirs = permutation_importance(_Known().fit(INPUTS, data.targets), INPUTS, data.targets[:, 0], n_repeats=30)
    ours = {one.column: one for one in found_of(data, "r2").columns}
    for name, mean in zip("abcd", theirs.importances_mean, strict=True):
        assert ours[name].rise == pytest.approx(mean, abs=4 * ours[name].standard_error + 0.02)


def test_the_seed_decides() -> None:
    assert found_of(table()) == found_of(table())
    assert found_of(table()) != found_of(table(), seed=1)


def test_a_category_is_one_column_and_accuracy_falls() -> None:
    inputs = np.column_stack([DRAW.integers(0, 3, 300), DRAW.normal(size=300)])
    columns = (Column("town", "category", ("x", "y", "z")), Column("size"))
    data = Dataset(inputs, inputs[:, 0].astype(int), Classes(np.array(["p", "q", "r"])), columns)
    found = measure_importance(
        lambda rows: np.eye(3)[rows[:, 0].astype(int)], data, "accuracy", part="valid", cost=1, seed=0
    )
    assert [one.column for one in found.columns] == ["town", "size"]
    assert found.columns[0].rise == pytest.approx(2 / 3, abs=0.1)
    assert found.columns[1].rise == 0


def test_a_large_model_gets_fewer_rows_then_fewer_repeats_then_none() -> None:
    sizes = [found_of(table(), cost=cost) for cost in (1e5, 5e6, 1.2e7)]
    assert [(one.rows, one.repeats) for one in sizes] == [(400, 5), (200, 5), (104, 4)]
    assert found_of(table(), cost=1e9).skipped == "4 columns of so large a model would take too long"
    seen: list[int] = []
    measure_importance(lambda x: (seen.append(len(x)), predict(x))[1], table(), "rmse", part="test", cost=5e6, seed=0)
    assert sum(seen) == 200 + 4 * 5 * 200


def test_what_is_no_table_has_none_and_many_columns_are_left_out() -> None:
    data = table()
    for other in (
        Dataset(INPUTS, data.targets, Numbers(), tuple(Column(name, "pixel") for name in "abcd")),
        Dataset(sparse.csr_matrix(INPUTS), data.targets, Numbers(), NAMES),
        Dataset(INPUTS.reshape(400, 2, 2), data.targets, Numbers()),
        Dataset(INPUTS[:, :1], data.targets, Numbers(), NAMES[:1]),
    ):
        assert measure_importance(predict, other, "rmse", part="test", cost=1, seed=0) is None
    wide = Dataset(np.zeros((5, 301)), np.zeros((5, 1)), Numbers(), tuple(Column(f"x{k}") for k in range(301)))
    assert "301 columns, more than 300" in found_of(wide).skipped


def test_it_survives_a_file() -> None:
    for found in (found_of(table()), found_of(table(), cost=1e9)):
        evidence = FitEvidence(importance=found)
        assert from_values(FitEvidence, json.loads(json.dumps(to_values(evidence)))) == evidence
