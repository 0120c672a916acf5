"""What a scaler did, undone: there and back again, and what cannot come back."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from gradwise.data.scaling import (
    Chain,
    Columns,
    Logarithm,
    MaxAbs,
    NormalScores,
    NoScaling,
    Pca,
    Pixels,
    SquareRoot,
    Standardise,
    Uniformise,
    UnitRange,
)
from gradwise.estimators.unscale import can_unscale, unscale
from gradwise.specs.dataset import Column

X = np.random.default_rng(0).normal(size=(60, 4)) * [1.0, 100.0, 1e-3, 3.0] + [0.0, 5.0, 1.0, -2.0]
SCALERS = [
    NoScaling(),
    Standardise(),
    MaxAbs(),
    UnitRange(),
    UnitRange(together=True),
    Pixels(),
    Uniformise(),
    Uniformise(quantiles=7),
    NormalScores(bend=0.0),
    Logarithm(),
    SquareRoot(),
    Pca(variance=1.0),
    Chain((Logarithm(), Standardise(), UnitRange())),
]


@pytest.mark.parametrize("scaler", SCALERS, ids=repr)
def test_training_rows_come_back(scaler):
    fitted = scaler.fit(X, ())
    assert can_unscale(fitted)
    np.testing.assert_allclose(unscale(fitted, fitted.apply(X, np.float64)), X, rtol=1e-9, atol=1e-9)


def test_rows_beyond_the_training_range_come_back_only_where_the_scaler_goes_on():
    far = np.concatenate([X[:1] - 1e3, X[:1] + 1e3])
    for scaler in (NormalScores(bend=0.0), Standardise()):
        fitted = scaler.fit(X, ())
        np.testing.assert_allclose(unscale(fitted, fitted.apply(far, np.float64)), far, rtol=1e-9)
    for scaler in (UnitRange(), Uniformise()):
        fitted = scaler.fit(X, ())
        np.testing.assert_allclose(unscale(fitted, fitted.apply(far, np.float64)), [X.min(0), X.max(0)], rtol=1e-12)
        np.testing.assert_allclose(unscale(fitted, np.array([[-5.0] * 4, [5.0] * 4])), [X.min(0), X.max(0)], rtol=1e-12)


@pytest.mark.parametrize("scaler", [Standardise(), MaxAbs(), UnitRange(), Uniformise(), NormalScores()], ids=repr)
def test_a_constant_column_comes_back_as_its_constant(scaler):
    rows = X.copy()
    rows[:, 1] = 0.0 if isinstance(scaler, MaxAbs) else 7.0
    fitted = scaler.fit(rows, ())
    scaled = fitted.apply(rows, np.float64)
    scaled[:, 1] += 0.3  # a reconstruction is not exact
    np.testing.assert_allclose(unscale(fitted, scaled)[:, 1], rows[:, 1], rtol=1e-12)


def test_fewer_principal_components_come_back_as_those_of_scikit_learn():
    fitted = Pca(count=2).fit(X, ())
    reference = PCA(2, whiten=True).fit(X)
    expected = reference.inverse_transform(reference.transform(X))
    np.testing.assert_allclose(unscale(fitted, fitted.apply(X, np.float64)), expected, rtol=1e-8, atol=1e-8)


def test_gaps_come_back_filled_and_categories_not_at_all():
    rows = X.copy()
    rows[::5, 2] = np.nan
    fitted = Columns(numbers=UnitRange()).fit(rows, ())
    scaled = fitted.apply(rows, np.float64)
    assert scaled.shape == (60, 5)
    filled = np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows)
    np.testing.assert_allclose(unscale(fitted, scaled), filled, rtol=1e-12, atol=1e-12)
    words = (Column("a"), Column("b", "category", ("x", "y")))
    mixed = np.column_stack([X[:, 0], np.arange(60) % 2])
    assert not can_unscale(Columns().fit(mixed, words))
    assert not can_unscale(Chain((Columns(), Standardise())).fit(mixed, words))
