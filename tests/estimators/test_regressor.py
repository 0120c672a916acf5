"""`Regressor`: one number, several numbers."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge

from gradwise.criteria.losses import GaussianLoss
from gradwise.criteria.semi_supervised import SemiSupervised
from gradwise.criteria.supervised import Supervised
from gradwise.data.scaling import UnitRange
from gradwise.estimators import Regressor
from gradwise.models.activations import Tanh
from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.models.joint_network import Joint
from gradwise.records.data_read import SetSizes
from gradwise.runtime.errors import RequestError


@pytest.mark.slow
def test_the_default_network_is_as_good_as_a_linear_model_where_that_is_right():
    X, y = load_diabetes(return_X_y=True)
    regressor = Regressor(random_state=0).fit(X[:300], y[:300])
    linear = Ridge(alpha=0.1).fit(X[:300], y[:300])
    assert regressor.score(X[300:], y[300:]) > linear.score(X[300:], y[300:]) - 0.12
    assert regressor.predict(X).dtype == np.float64


def test_several_numbers_at_once_in_units_of_their_own(small):
    draw = np.random.default_rng(0)
    X = draw.normal(size=(300, 3))
    Y = np.column_stack([1000.0 * X[:, 0] + 5000.0, 0.001 * (X[:, 1] - X[:, 2])])
    regressor = Regressor(**small).fit(X, Y)
    predictions = regressor.predict(X)
    assert predictions.shape == (300, 2)
    for column in range(2):
        rest = np.var(Y[:, column] - predictions[:, column]) / np.var(Y[:, column])
        assert rest < 0.05
    assert regressor.score(X, Y) > 0.95


@pytest.mark.slow
def test_predictions_have_the_dimensions_of_the_targets(iris, small):
    X, _ = iris
    flat = Regressor(**small).fit(X[:, :3], X[:, 3])
    column = Regressor(**small).fit(X[:, :3], X[:, [3]])
    assert flat.predict(X[:, :3]).shape == (150,)
    assert column.predict(X[:, :3]).shape == (150, 1)
    assert np.array_equal(flat.predict(X[:, :3]), column.predict(X[:, :3]).ravel())
    wide = flat.set_params(warm_start=True)
    with pytest.raises(RequestError, match="y has 2 columns, but training began with 1"):
        wide.fit(X[:, :3], X[:, [3, 3]])


def test_a_column_of_validation_targets_does_not_change_the_dimensions(iris, small):
    X, _ = iris
    regressor = Regressor(**small).fit(X[:100, :3], X[:100, 3], validation_data=(X[100:, :3], X[100:, [3]]))
    assert regressor.predict(X[:5, :3]).shape == (5,)


def test_one_row_is_enough(small):
    assert Regressor(**small).fit([[1.0, 2.0]], [3.0]).predict([[1.0, 2.0]]).shape == (1,)


def test_a_number_that_is_not_known_is_learned_around(small):
    """In the units of the known ones; without a semi-supervised criterion NaN stays refused."""
    draw = np.random.default_rng(0)
    X = draw.uniform(size=(300, 3))
    y = np.where(np.arange(300) % 3 == 0, 500.0 + 100.0 * X[:, 0], np.nan)
    half = {
        **small,
        "model": Joint(MlpAutoEncoder(widths=(8,), activation=Tanh())),
        "criterion": SemiSupervised(Supervised(GaussianLoss())),
        "scaler": UnitRange(),
    }
    regressor = Regressor(**half).fit(X, y)
    assert regressor.record_.data.rows == SetSizes(90 + 200, 10, 0)
    rest = np.var(500.0 + 100.0 * X[:, 0] - regressor.predict(X)) / np.var(100.0 * X[:, 0])
    assert rest < 0.2
    with pytest.raises(ValueError, match="y contains NaN"):
        Regressor(**small).fit(X, y)
