"""`partial_fit`: one pass, no validation, everything but the weights fixed by the first call."""

import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from gradwise.curvature.objective import Examples
from gradwise.data.batches import Reshuffled
from gradwise.estimators import Classifier, Regressor
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError
from gradwise.training.state import init
from gradwise.training.stopping import Off
from gradwise.training.update import gather_batch, step

SMALL = {
    "model": Mlp(widths=(16,), dropout=0.2),
    "optimiser": MovingAverage(Adam()),
    "batches": Reshuffled(size=32),
    "random_state": 0,
}


def same(first, second):
    """Whether two states have the same bits in parameters and optimiser."""
    pairs = zip(
        jax.tree.leaves((first.parameters, first.optimiser)),
        jax.tree.leaves((second.parameters, second.optimiser)),
        strict=True,
    )
    return all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.slow
def test_passes_over_the_same_rows_are_the_epochs_of_one_fit(iris):
    X, y = iris
    passes = Classifier(**SMALL)
    for _ in range(3):
        passes.partial_fit(X, y, classes=[0, 1, 2])
    whole = Classifier(**SMALL, stopping=Off(epochs=3)).fit(X, y, validation_data=(X, y))
    assert same(passes.record_.state, whole.record_.state)
    assert passes.n_iter_ == whole.n_iter_ == 3
    assert passes.history_["age_examples"] == [150, 300, 450]


@pytest.mark.slow
def test_a_pass_equals_updates_made_by_hand(iris):
    X, y = iris
    classifier = Classifier(**{**SMALL, "optimiser": Sgd(learning_rate=0.1)}).partial_fit(
        X[:50], y[:50], classes=[0, 1, 2]
    )
    record = classifier.record_
    rows = record.predictor.scaler.apply(X[:50])
    train = Examples(jnp.asarray(rows), jnp.asarray(y[:50], dtype=jnp.int32))
    problem, state = init(record.recipe, train, train, outputs=3, classes=3, key=keys.from_seed(0))
    numbers = jnp.arange(problem.updates_per_epoch, dtype=jnp.int32)
    batches, present, _ = problem.recipe.batches.indices(numbers, 50, key=problem.key)
    visited = np.asarray(batches)[np.asarray(present) > 0]
    assert sorted(visited.tolist()) == list(range(50))
    one = eqx.filter_jit(lambda state, r, p: step(problem, state, gather_batch(problem, r, p))[0])
    for chosen, there in zip(batches, present, strict=True):
        state = one(state, chosen, there)
    for by_hand, passed in zip(
        jax.tree.leaves(state.parameters), jax.tree.leaves(record.state.parameters), strict=True
    ):
        np.testing.assert_allclose(by_hand, passed, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_chunks_of_different_lengths_each_visit_every_row_once(iris):
    X, y = iris
    classifier = Classifier(**SMALL).partial_fit(X[:50], y[:50], classes=[0, 1, 2])
    first = classifier.record_
    classifier.partial_fit(X[50:], y[50:])
    assert int(first.state.update) == 2  # 50 rows in mini-batches of 32
    assert int(classifier.record_.state.update) == 4 + 4  # from the next whole epoch of 100 rows on
    assert classifier.n_iter_ == 2
    assert classifier.history_["age_examples"] == [50, 150]
    assert classifier.record_.predictor.scaler is first.predictor.scaler


def test_all_passes_over_as_many_rows_share_one_program(iris, caplog):
    X, y = iris
    classifier = Classifier(**{**SMALL, "model": Mlp(widths=(13,))})
    with jax.log_compiles(), caplog.at_level("WARNING", logger="jax"):
        for start in range(0, 150, 30):
            classifier.partial_fit(X[start : start + 30], y[start : start + 30], classes=[0, 1, 2])
    compiled = [line for line in caplog.messages if line.startswith("Compiling jit(_pass)")]
    assert len(compiled) == 1


def test_an_earlier_record_stays_usable(iris):
    X, y = iris
    classifier = Classifier(**SMALL).partial_fit(X, y, classes=[0, 1, 2])
    first, before = classifier.record_, classifier.predict_proba(X)
    classifier.partial_fit(X, y)
    assert np.array_equal(first.predictor.predict(X), before)
    assert not np.array_equal(classifier.predict_proba(X), before)
    assert int(first.state.update) == 5


def test_the_first_call_fixes_scaler_units_and_classes(iris):
    X, y = iris
    regressor = Regressor(**SMALL).partial_fit(X[:100], X[:100, 0])
    scaler, shift = regressor.record_.predictor.scaler, regressor.record_.predictor.shift
    np.testing.assert_allclose(shift, X[:100, 0].mean())
    regressor.partial_fit(X[100:] + 100.0, X[100:, 0])
    assert regressor.record_.predictor.scaler is scaler
    assert regressor.record_.predictor.shift is shift
    classifier = Classifier(**SMALL).partial_fit(X[y < 2], y[y < 2], classes=[2, 1, 0])
    assert classifier.classes_.tolist() == [0, 1, 2]
    assert classifier.predict_proba(X).shape == (150, 3)


def test_training_goes_on_after_fit_and_after_a_pickle(iris, small):
    X, y = iris
    classifier = Classifier(**small).fit(X, y)
    updates = int(classifier.record_.state.optimiser.update)
    copy = pickle.loads(pickle.dumps(classifier))
    classifier.partial_fit(X, y)
    assert int(classifier.record_.state.optimiser.update) == updates + 5
    assert np.array_equal(copy.partial_fit(X, y).predict_proba(X), classifier.predict_proba(X))


def test_labels_need_no_classes(iris):
    X, y = iris
    labels = np.eye(3, dtype=int)[y]
    classifier = Classifier(**SMALL).partial_fit(X, labels)
    assert classifier.predict(X).shape == (150, 3)


@pytest.mark.parametrize(
    ("prepare", "call", "message"),
    [
        ({}, {}, "needs `classes`"),
        ({"class_weight": "balanced"}, {"classes": [0, 1, 2]}, "needs all rows at once"),
        ({}, {"classes": [0, 1]}, "y holds the class 2"),
        ({}, {"classes": [1]}, "one class"),
    ],
)
def test_a_first_call_that_cannot_be_met_is_refused(iris, prepare, call, message):
    with pytest.raises(RequestError, match=message):
        Classifier(**SMALL, **prepare).partial_fit(*iris, **call)


def test_a_later_call_that_contradicts_the_first_is_refused(iris):
    X, y = iris
    classifier = Classifier(**SMALL).partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(RequestError, match="`classes` is not what training began with"):
        classifier.partial_fit(X, y, classes=[0, 1, 2, 3])
    with pytest.raises(RequestError, match="y holds the class 7"):
        classifier.partial_fit(X, np.full(150, 7))
    with pytest.raises(ValueError, match="X has 3 features"):
        classifier.partial_fit(X[:, :3], y)
    with pytest.raises(RequestError, match="`model` has changed"):
        classifier.set_params(model__widths=(8,)).partial_fit(X, y)


def test_a_pass_that_diverges_says_so(iris):
    X, _ = iris
    regressor = Regressor(**{**SMALL, "optimiser": Sgd(learning_rate=1e30)})
    with pytest.warns(ConvergenceWarning, match="lower the learning rate"):
        regressor.partial_fit(X, X[:, 0])
    assert regressor.record_.outcome.failed
