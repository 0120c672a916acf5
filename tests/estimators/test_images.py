"""Images as arrays of three or four dimensions, in every estimator."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from gradwise.estimators import AutoClassifier, AutoRegressor, Classifier, DenoisingAutoEncoder, Regressor
from gradwise.models.mlp import Mlp
from gradwise.runtime.errors import RequestError
from gradwise.training.stopping import Off

SHORT = {"model": Mlp(widths=(8,)), "stopping": Off(epochs=80), "random_state": 0}
LITTLE = {"budget": "1 trials", "space": {"model.widths": (8,), "stopping": Off(epochs=10)}, "random_state": 0}


@pytest.fixture(scope="module")
def images() -> tuple[np.ndarray, np.ndarray]:
    """Dark and light images."""
    draw = np.random.default_rng(0)
    y = np.arange(60) % 2
    return (draw.integers(0, 128, (60, 6, 5)) + 120 * y[:, None, None]).astype(np.uint8), y


def test_a_classifier_of_images_scales_pixels_as_files_do(images):
    X, y = images
    model = Classifier(**SHORT).fit(X, y)
    assert model.score(X[:1], y[:1]) == 1.0
    assert model.n_features_in_ == 30
    assert model.record_.data.shape == (6, 5)
    assert "pixels" in " ".join(model.record_.data.scaling)
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(model.predict_proba(X.reshape(60, 30)), probabilities)
    np.testing.assert_allclose(model.predict_proba(X.tolist()), probabilities, atol=1e-6)
    colour = np.repeat(X[..., None], 3, axis=3)
    assert Classifier(**SHORT).fit(colour, y).predict(colour).tolist() == y.tolist()


def test_other_shapes_are_refused_in_one_line(images):
    X, y = images
    model = Classifier(**SHORT).fit(X, y)
    for wrong in (X[:, :5], X[:, :, :, None].repeat(3, 3), X.reshape(60, 30)[:, :7]):
        with pytest.raises(RequestError, match=r"but `fit` saw \(6, 5\)"):
            model.predict(wrong)
    with pytest.raises(ValueError, match="dim 3"):
        clone(model).fit(X.reshape(60, 30), y).predict(X)
    with pytest.raises(RequestError, match=r"expected images \(n, h, w\)"):
        clone(model).fit(X.reshape(60, 1, 1, 6, 5), y)
    flat = model.fit(X.reshape(60, 30), y)  # again, with rows
    assert flat.n_features_in_ == 30
    assert flat.predict(X.reshape(60, 30)).shape == (60,)


@pytest.mark.parametrize(
    "estimator",
    [
        Regressor(**SHORT),
        pytest.param(AutoClassifier(**LITTLE), marks=pytest.mark.slow),
        pytest.param(AutoRegressor(**LITTLE), marks=pytest.mark.slow),
    ],
)
def test_every_estimator_takes_images(images, estimator):
    X, y = images
    assert clone(estimator).fit(X, y).predict(X[:3]).shape == (3,)


@pytest.mark.slow
def test_features_and_folds_of_images(images):
    X, y = images
    learner = DenoisingAutoEncoder(stopping=Off(epochs=2), random_state=0)
    assert len(learner.fit(X).transform(X)) == 60
    assert cross_val_score(Classifier(**SHORT), X, y, cv=2).mean() > 0.9
    early = Classifier(**SHORT).partial_fit(X, y, classes=[0, 1]).partial_fit(X, y)
    assert early.predict(X).shape == (60,)
