"""Stacks: layers learned one by one, what fine-tuning makes of them, and who sees which rows."""

import dataclasses
import pickle

import jax
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.utils.estimator_checks import check_classifiers_train, check_regressors_train

from gradwise.criteria.reconstruction import CrossEntropy, SquaredError
from gradwise.data.batches import Reshuffled
from gradwise.data.scaling import Standardise, UnitRange
from gradwise.estimators import StackedAutoEncoder, StackedClassifier, StackedRegressor
from gradwise.estimators.base import TrainingRows
from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.pretraining.layer_recipes import LEARNERS, learner
from gradwise.pretraining.stack import fit_pretrained
from gradwise.records.data_read import SetSizes
from gradwise.runtime.errors import RequestError
from gradwise.runtime.keys import from_seed
from gradwise.specs.dataset import Classes, Dataset
from gradwise.training.stopping import Off

LAYER = dataclasses.replace(learner("plain", 4), stopping=Off(epochs=20), batches=Reshuffled(size=40))
LAYERS = [LAYER, LAYER]
TINY = {"layers": LAYERS, "scaler": UnitRange(), "validation_fraction": 0.0, "random_state": 0}
TUNED = {
    **TINY,
    "model": Mlp(dropout=0.0),
    "optimiser": Adam(learning_rate=0.05),
    "batches": Reshuffled(size=40),
    "stopping": Off(epochs=40),
}


@pytest.fixture(scope="module")
def rows(iris):
    return iris[0][:80], iris[1][:80]


@pytest.fixture(scope="module")
def classifier(rows):
    return StackedClassifier(**TUNED).fit(*rows)


def unit(X):
    return (X - X.min(0)) / np.ptp(X, axis=0)


def up(layers, h):
    for layer in layers:
        h = expit(h @ np.asarray(layer.weight).T + np.asarray(layer.bias))
    return h


def same_layers(one, other):
    return all(np.array_equal(a.weight, b.weight) for a, b in zip(one.layers, other.layers, strict=True))


# What is computed.


@pytest.mark.slow
def test_features_and_the_way_back_go_through_every_layer(rows):
    X, _ = rows
    stack = StackedAutoEncoder(**TINY).fit(X)
    codes = stack.transform(X)
    np.testing.assert_allclose(codes, up(stack.stack_.layers, unit(X)), atol=1e-6)
    down = codes
    for network in reversed(stack.stack_.networks):
        down = expit(down @ np.asarray(network.encoder[0].weight) + np.asarray(network.decoder[0].bias))
    np.testing.assert_allclose(stack.inverse_transform(codes), X.min(0) + np.ptp(X, axis=0) * down, atol=1e-5)
    assert stack.get_feature_names_out().tolist() == [f"stackedautoencoder{number}" for number in range(4)]
    assert np.array_equal(pickle.loads(pickle.dumps(stack)).transform(X[:7]), codes[:7])
    assert [record.data.rows.train for record in stack.stack_.records] == [80, 80]


@pytest.mark.slow
def test_probabilities_are_those_of_an_output_on_the_tuned_features(rows, classifier):
    X, y = rows
    predictor = classifier.record_.predictor
    features = up(predictor.network.layers, unit(X))
    np.testing.assert_allclose(classifier.transform(X), features, atol=1e-6)
    logits = features @ np.asarray(predictor.network.output.weight).T + np.asarray(predictor.network.output.bias)
    np.testing.assert_allclose(classifier.predict_proba(X), softmax(logits / predictor.temperature, axis=1), atol=1e-5)
    np.testing.assert_allclose(classifier.stack_.encode(X), up(classifier.stack_.layers, unit(X)), atol=1e-6)
    assert not same_layers(classifier.stack_, predictor.network)
    assert classifier.score(X, y) > 0.9
    assert classifier.record_.task == "classes"
    assert classifier.record_.recipe.model.layers[0].model.widths == (4,)


@pytest.mark.slow
def test_the_layers_are_those_of_the_stack_without_labels(rows, classifier):
    X, y = rows
    alone = StackedAutoEncoder(**TINY).fit(X)
    other = StackedClassifier(**TUNED).fit(X, y[::-1])
    assert same_layers(classifier.stack_, alone.stack_)
    assert same_layers(classifier.stack_, other.stack_)
    assert not np.array_equal(classifier.predict_proba(X), other.predict_proba(X))


@pytest.mark.slow
def test_rows_to_choose_by_are_not_learned_from(rows, classifier, iris):
    X, y = rows
    judged = StackedClassifier(**TUNED).fit(X, y, validation_data=(iris[0][70:], iris[1][70:]))
    assert judged.record_.data.rows == SetSizes(80, 80, 0)
    assert same_layers(judged.stack_, classifier.stack_)


# Rows without a target.


@pytest.mark.slow
def test_rows_without_a_class_serve_pre_training_alone(rows, classifier):
    X, y = rows
    known = np.arange(80) < 40
    some = StackedClassifier(**TUNED, unlabelled=-1).fit(X, np.where(known, y, -1))
    assert some.classes_.tolist() == [0, 1, 2]
    apart = [Dataset(X[part], y[part], Classes(np.arange(3))) for part in (known, ~known)]
    layers = [dataclasses.replace(LAYER, split=TrainingRows())] * 2
    recipe = dataclasses.replace(some.record_.recipe, model=TUNED["model"])
    by_hand, stack = fit_pretrained(recipe, apart[0], layers, key=from_seed(0), unlabelled=apart[1])
    assert same_layers(some.stack_, stack)
    assert np.array_equal(some.predict_proba(X), by_hand.predictor.predict(X))
    assert [record.data.rows.train for record in some.stack_.records] == [80, 80]
    assert some.record_.data.rows.train == 40
    shifted = StackedClassifier(**TUNED).fit(X, np.where(y == 0, -1, y))  # not asked for, -1 is a class
    assert shifted.classes_.tolist() == [-1, 1, 2]
    assert np.array_equal(shifted.predict_proba(X), classifier.predict_proba(X))
    with pytest.raises(RequestError, match="every row of y is -1"):
        some.fit(X, np.full(80, -1))
    with pytest.raises(RequestError, match="several labels"):
        some.fit(X, np.eye(3, dtype=int)[y])


@pytest.mark.slow
def test_rows_without_a_number_serve_pre_training_alone_in_sparse_rows_too(rows):
    X, _ = rows
    X = X - X.min(axis=0)  # the range of a sparse column always holds 0
    y = np.where(np.arange(80) % 2 == 0, X[:, 3], np.nan)
    dense = StackedRegressor(**TUNED, unlabelled=np.nan).fit(X, y)
    thin = StackedRegressor(**TUNED, unlabelled=-9.0).fit(sparse.csr_array(X), np.nan_to_num(y, nan=-9.0))
    assert dense.record_.data.rows.train == 40
    np.testing.assert_allclose(thin.predict(sparse.csr_array(X)), dense.predict(X), atol=0.05)
    assert dense.score(X, X[:, 3]) > 0.9
    with pytest.raises(ValueError, match="NaN"):
        StackedRegressor(**TUNED).fit(X, y)


# What is chosen, and what is refused.


def test_a_text_stands_for_the_recommended_layers(rows, monkeypatch):
    X, _ = rows
    monkeypatch.setitem(
        LEARNERS, "plain", lambda units, unit: dataclasses.replace(LAYER, model=MlpAutoEncoder(widths=(units,)))
    )
    named = StackedAutoEncoder(**{**TINY, "layers": "plain:4x2"}).fit(X)
    assert same_layers(named.stack_, StackedAutoEncoder(**TINY).fit(X).stack_)


def test_layers_of_a_text_get_the_criterion_that_their_inputs_ask_for(monkeypatch):
    asked = []
    for kind in ("plain", "psd"):
        monkeypatch.setitem(
            LEARNERS, kind, lambda units, unit, make=LEARNERS[kind]: asked.append(unit) or make(units, unit)
        )
    X = np.random.default_rng(0).normal(size=(10, 3))
    for scaler in (None, Standardise()):
        stack = StackedAutoEncoder("plain:2,psd:2,plain:2", scaler=scaler)
        data = stack._dataset(X, np.zeros((10, 0)), None, first=True)
        recipes = stack._layer_recipes(stack._part("scaler"), data, TrainingRows(), jax.random.key(0))
        assert isinstance(recipes[0].criterion.loss, CrossEntropy if scaler is None else SquaredError)
        assert isinstance(recipes[2].criterion.loss, SquaredError)  # codes of tanh units
    assert asked == [True, True, False, False, True, False]


def test_supervised_layers_are_asked_for_by_name(rows, monkeypatch):
    """Each is the hidden layer of a network for the classes; without a target there is nothing to learn them from."""
    X, y = rows
    named = StackedClassifier(**{**TUNED, "layers": "supervised:4x2", "stopping": Off(epochs=2)})
    monkeypatch.setattr("gradwise.pretraining.layer_recipes.STOPPING", Off(epochs=2))
    named.fit(X, y)
    assert [record.task for record in named.stack_.records] == ["classes", "classes"]
    assert named.transform(X).shape == (80, 4)
    assert not same_layers(named.stack_, named.fit(X, y[::-1]).stack_)
    with pytest.raises(RequestError, match="a supervised layer learns from the target"):
        StackedAutoEncoder("supervised:4").fit(X)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": "denoise:4"}, "invalid layer"),
        ({"layers": []}, "`layers` must be a text such as"),
        ({"layers": 3}, "`layers` must be a text such as"),
        ({"layers": [LAYER.model]}, "`layers` must be a text such as"),
        ({"scaler": Standardise()}, r"takes inputs in \[0, 1\]"),
        ({"validation_fraction": 1.0}, "`validation_fraction`"),
        ({"max_time": -1}, "`max_time`"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_line(rows, settings, message):
    with pytest.raises(RequestError, match=message):
        StackedAutoEncoder(**{**TINY, **settings}).fit(rows[0])
    with pytest.raises(RequestError, match=message):
        StackedClassifier(**{**TUNED, **settings}).fit(*rows)


def test_nested_parameters_are_those_of_the_parts_that_there_are():
    stack = StackedAutoEncoder().set_params(scaler__sparse__together=True, layers="plain:3")
    assert stack.scaler.sparse.together
    with pytest.raises(RequestError, match="no parameter `model__dropout`"):
        stack.set_params(model__dropout=0.5)
    assert StackedClassifier().set_params(model__dropout=0.5).model.dropout == 0.5


def test_very_few_rows_and_a_frame_of_words_are_enough():
    frame = pd.DataFrame({"a": [0.1, 0.4, 0.9, 0.3], "b": ["x", "y", "x", "y"], "c": [1.0] * 4})
    stack = StackedRegressor(**{**TUNED, "layers": [LAYER], "scaler": None}).fit(frame, [1.0, 2.0, 3.0, 4.0])
    assert stack.predict(frame).shape == (4,)
    assert stack.transform(frame).shape == (4, 4)


# scikit-learn's contract.


@pytest.mark.slow
def test_scikit_learns_contract_holds_where_a_stack_could_differ():
    settings = {**TUNED, "layers": [LAYER], "scaler": None}
    check_classifiers_train("StackedClassifier", StackedClassifier(**settings))
    check_regressors_train("StackedRegressor", StackedRegressor(**settings))


def test_the_tags_say_what_is_true():
    for stack in (StackedClassifier(), StackedRegressor(), StackedAutoEncoder()):
        tags = stack.__sklearn_tags__()
        assert tags.input_tags.sparse
        assert tags.input_tags.allow_nan
        assert tags.transformer_tags is not None
        assert not tags.no_validation
        assert not tags.non_deterministic
    assert StackedClassifier().__sklearn_tags__().estimator_type == "classifier"
    assert StackedRegressor().__sklearn_tags__().estimator_type == "regressor"
    assert not StackedAutoEncoder().__sklearn_tags__().target_tags.required
