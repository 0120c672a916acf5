"""`Classifier`: labels of any kind, weights of classes, several labels at once, and scikit-learn's tools around it."""

import datetime

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.metrics import recall_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gradwise.criteria.semi_supervised import SemiSupervised
from gradwise.data.scaling import UnitRange
from gradwise.defaults import table
from gradwise.estimators import Classifier
from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.models.joint_network import Joint
from gradwise.records.data_read import SetSizes
from gradwise.runtime.errors import RequestError
from gradwise.specs.paths import get
from gradwise.training.stopping import Off


@pytest.mark.slow
def test_the_default_network_learns_iris(iris):
    X, y = iris
    classifier = Classifier(random_state=0).fit(X[:100], y[:100])
    assert classifier.score(X[100:], y[100:]) >= 0.92
    assert classifier.record_.recipe.model == table("classes", 100).model


@pytest.mark.slow
def test_grid_search_over_a_knob_and_a_switch(iris, small):
    X, y = iris
    grid = {"optimiser__learning_rate": [1e-5, 3e-2], "model__widths": [(4,), (16,)]}
    search = GridSearchCV(Classifier(**small), grid, cv=3).fit(X, y)
    assert search.best_params_["optimiser__learning_rate"] == 3e-2
    assert search.best_estimator_.optimiser.optimiser.learning_rate == 3e-2
    assert search.best_estimator_.model.widths == search.best_params_["model__widths"]
    assert search.best_score_ > 0.9
    assert search.cv_results_["mean_test_score"].min() < 0.8


def test_cross_validation_and_a_pipeline_with_nested_names(iris, small):
    X, y = iris
    pipeline = make_pipeline(StandardScaler(), Classifier(**small))
    pipeline.set_params(classifier__optimiser__learning_rate=0.02)
    assert pipeline.named_steps["classifier"].optimiser.optimiser.learning_rate == 0.02
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.9


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["yes", "no"]),
        np.array(["yes", "no"], dtype=object),
        np.array([True, False]),
        np.array([-1, 1]),
        np.array([7, 1000], dtype=np.int16),
        np.array([0.0, 2.0]),
        np.array([3, 5], dtype=object),
        np.array([datetime.date(2024, 1, 1), datetime.date(2023, 1, 1)], dtype=object),
    ],
    ids=lambda labels: f"{labels.dtype}-{labels[0]}",
)
def test_classes_are_given_back_as_they_came(iris, small, labels):
    X, y = iris
    given = labels[(y > 0).astype(int)]
    classifier = Classifier(**small).fit(X, given)
    predicted = classifier.predict(X)
    assert classifier.classes_.dtype == labels.dtype
    assert predicted.dtype == labels.dtype
    assert type(predicted[0]) is type(labels[0])
    assert classifier.classes_.tolist() == sorted(labels.tolist())
    assert np.mean(predicted == given) > 0.95
    assert np.array_equal(classifier.classes_[classifier.predict_proba(X).argmax(1)], predicted)


@pytest.mark.parametrize("kind", ["category", "str", "Int64", "bool"])
def test_classes_of_a_pandas_series(iris, small, kind):
    X, y = iris
    values = {"category": ["a", "b"], "str": ["a", "b"], "Int64": [4, 9], "bool": [False, True]}[kind]
    series = pd.Series([values[int(one > 0)] for one in y]).astype(kind)
    classifier = Classifier(**small).fit(X, series)
    assert classifier.classes_.tolist() == values
    assert classifier.score(X, series) > 0.95


def test_labels_that_have_no_order_are_refused(iris, small):
    X, _ = iris
    mixed = np.array([1, "a"] * 75, dtype=object)
    with pytest.raises(ValueError, match="Unknown label type"):
        Classifier(**small).fit(X, mixed)


def test_several_labels_at_once(small):
    draw = np.random.default_rng(0)
    X = draw.normal(size=(300, 4))
    labels = (X[:, :3] + X[:, [3]] > 0).astype(int)
    classifier = Classifier(**small).fit(X, labels)
    assert classifier.record_.task == "labels"
    assert classifier.classes_.tolist() == [0, 1, 2]
    probabilities = classifier.predict_proba(X)
    assert probabilities.shape == (300, 3)
    assert np.array_equal(classifier.predict(X), (probabilities > 0.5).astype(int))
    assert np.mean(classifier.predict(X) == labels) > 0.93
    again = Classifier(**small).fit(X, sparse.csr_array(labels))
    assert np.array_equal(again.predict_proba(X), probabilities)
    booleans = Classifier(**small).fit(X, labels.astype(bool))
    assert booleans.predict(X).dtype == bool
    with pytest.raises(RequestError, match="needs classes"):
        Classifier(**small, class_weight="balanced").fit(X, labels)


def overlapping(rare: int = 30, count: int = 600):
    draw = np.random.default_rng(1)
    y = (np.arange(count) < rare).astype(int)
    return draw.normal(size=(count, 2)) + 1.2 * y[:, None], y


@pytest.mark.slow
def test_balanced_class_weights_raise_the_recall_of_a_rare_class(small):
    X, y = overlapping()
    shared = {**small, "stopping": Off(epochs=30)}
    plain = recall_score(y, Classifier(**shared).fit(X, y).predict(X))
    balanced = recall_score(y, Classifier(**shared, class_weight="balanced").fit(X, y).predict(X))
    mapped = recall_score(y, Classifier(**shared, class_weight={0: 1.0, 1: 19.0}).fit(X, y).predict(X))
    assert plain < 0.4
    assert balanced > plain + 0.3
    assert mapped == pytest.approx(balanced, abs=0.1)


def test_log_probabilities_are_the_logarithms(iris, small):
    X, y = iris
    classifier = Classifier(**small).fit(X, y)
    np.testing.assert_allclose(np.exp(classifier.predict_log_proba(X)), classifier.predict_proba(X), rtol=1e-12)
    np.testing.assert_allclose(classifier.predict_proba(X).sum(1), 1.0, rtol=1e-12)


def test_a_metric_is_followed_and_told(iris, small):
    X, y = iris
    record = Classifier(**small, metric="log_loss").fit(X, y).record_
    assert record.metric == "log_loss"
    assert get(record.recipe, "criterion.loss.score_by") == "loss"
    with pytest.raises(RequestError, match="unknown metric `rmse` for classes"):
        Classifier(**small, metric="rmse").fit(X, y)


@pytest.mark.slow
def test_a_class_of_minus_one_is_unknown_to_a_semi_supervised_criterion_only(iris, small):
    X, y = iris
    known = np.arange(150) % 5 == 0
    shared = {**small, "metric": "log_loss", "class_weight": "balanced"}
    half = {**shared, "model": Joint(MlpAutoEncoder(widths=(8,))), "criterion": SemiSupervised(), "scaler": UnitRange()}
    half["stopping"] = Off(epochs=200)
    names = np.array(["a", "b", "c"], object)[y]
    for labels in (y + 3, (y + 3).astype(float), names):
        classifier = Classifier(**half).fit(X, np.where(known, labels, -1))
        assert classifier.classes_.tolist() == sorted(set(labels))
        assert classifier.record_.data.rows == SetSizes(27 + 120, 3)
        assert get(classifier.record_.recipe, "criterion.supervised.loss.score_by") == "loss"
        assert set(classifier.predict(X)) <= set(labels)
    assert classifier.score(X, names) > 0.8
    ordinary = Classifier(**shared).fit(X, y - 1)
    assert ordinary.classes_.tolist() == [-1, 0, 1]
    given = Classifier(**half).fit(X, np.where(known, y, -1), validation_data=(X[:30], y[:30]))
    assert given.record_.data.rows == SetSizes(150, 30, 0)
    with pytest.raises(RequestError, match="`validation_data`: row 2 has no target"):
        Classifier(**half).fit(X, np.where(known, y, -1), validation_data=(X[:3], np.array([0, 1, -1])))
    passes = Classifier(**half | {"class_weight": None, "metric": None})
    passes.partial_fit(X, np.where(known, y, -1), classes=[0, 1, 2]).partial_fit(X, np.full(150, 1))
    assert passes.n_iter_ == 2
    with pytest.raises(RequestError, match="missing in every row"):
        passes.partial_fit(X, np.full(150, -1))
