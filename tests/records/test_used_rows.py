"""Rows are known again by their numbers, dense or sparse, and of many rows a sample stands for all."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from gradwise.estimators.auto import AutoClassifier
from gradwise.estimators.classifier import Classifier
from gradwise.estimators.regressor import Regressor
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.records import used_rows
from gradwise.records.used_rows import UsedRows, row_marks
from gradwise.training.stopping import Off


def test_equal_rows_have_equal_marks_and_others_do_not() -> None:
    rows = np.random.default_rng(0).normal(size=(20_000, 3))
    marks = row_marks(rows)
    assert len(np.unique(marks)) == len(rows)
    np.testing.assert_array_equal(row_marks(rows.astype(np.float32)), marks)
    np.testing.assert_array_equal(row_marks(rows[::-1]), marks[::-1])
    assert (row_marks(rows[:, ::-1]) != marks).all()
    assert (row_marks(rows + 1e-3) != marks).all()


def test_zeros_missing_values_sparse_rows_and_pictures() -> None:
    rows = np.array([[0.0, 1.0, 0.0], [np.nan, 0.0, 2.0], [-0.0, 1.0, -0.0]])
    marks = row_marks(rows)
    assert marks[0] == marks[2]
    np.testing.assert_array_equal(row_marks(csr_matrix(np.nan_to_num(rows))), row_marks(np.nan_to_num(rows)))
    negative = rows.copy()
    negative[1, 0] = -np.nan
    np.testing.assert_array_equal(row_marks(negative), marks)
    pictures = np.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_array_equal(row_marks(pictures), row_marks(pictures.reshape(2, 12)))


def test_rows_that_were_used_are_told_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    train, valid, other = random.normal(size=(300, 4)), random.normal(size=(100, 4)), random.normal(size=(100, 4))
    used = UsedRows.of(train, valid)
    assert used.exact
    np.testing.assert_array_equal(used.among(np.concatenate([valid, other])), np.repeat([True, False], 100))
    again = UsedRows.of(other, earlier=used)
    assert again.among(np.concatenate([train, other])).all()
    monkeypatch.setattr(used_rows, "_MOST", 128)
    few = UsedRows.of(train, valid)
    assert not few.exact
    assert len(few.marks) == 128
    assert few.among(train).all()
    assert not few.among(other).any()
    mixed = few.among(np.concatenate([train, other]))
    assert 0.6 < mixed.mean() < 0.9  # three quarters of them were used
    assert UsedRows.of(other, earlier=few).below <= few.below


QUICK = {"model": Mlp(widths=(4,)), "optimiser": Sgd(0.3), "stopping": Off(epochs=20.0)}


def _clouds() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(2)
    targets = np.tile([0, 1], 60)
    return random.normal(size=(120, 2)) + 3.0 * targets[:, None], targets


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_score_of_training_rows_says_that_it_is_optimistic() -> None:
    inputs, targets = _clouds()
    network = Classifier(**QUICK, random_state=0).fit(inputs[:80], targets[:80])
    with pytest.warns(UserWarning, match="All of these rows were used to train or to choose .* optimistic"):
        network.score(inputs[:80], targets[:80])
    with pytest.warns(UserWarning, match="67% of these rows"):
        network.score(inputs, targets)
    assert network.score(inputs[80:], targets[80:]) > 0.8
    numbers = Regressor(**QUICK, random_state=0).fit(inputs[:80], inputs[:80, 0])
    with pytest.warns(UserWarning, match="optimistic"):
        numbers.score(inputs[:80], inputs[:80, 0])
    numbers.score(inputs[80:], inputs[80:, 0])


@pytest.mark.filterwarnings("error::UserWarning")
def test_so_does_that_of_a_search() -> None:
    inputs, targets = _clouds()
    space = {"model": Mlp(widths=(4,)), "stopping": Off(epochs=2.0), "optimiser.learning_rate": "log(0.01, 0.1)"}
    found = AutoClassifier("1 trials", space={**space, "optimiser": Sgd(0.1)}, committee="none", random_state=0)
    found.fit(inputs[:80], targets[:80])
    with pytest.warns(UserWarning, match="All of these rows"):
        found.score(inputs[:80], targets[:80])
    found.score(inputs[80:], targets[80:])
