"""What both estimators share: data as it comes, weights, splits, warm starts, seeds, and honest refusals."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import log_loss

from gradwise import defaults
from gradwise.criteria.losses import SigmoidLoss
from gradwise.data.scaling import MaxAbs
from gradwise.estimators import Classifier, Regressor
from gradwise.models.input_stage import Embedded
from gradwise.models.mlp import Mlp
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.optimisers.wrappers.rates_by_kind import RatesByKind
from gradwise.records.data_read import SetSizes
from gradwise.runtime.errors import RequestError
from gradwise.training.stopping import Off, Patience
from tests.marks import parametrize_one_quick

# Seeds.


@pytest.mark.slow
def test_one_seed_gives_one_network_and_none_gives_another_each_time(iris, small):
    X, y = iris
    first = Classifier(**small).fit(X, y).predict_proba(X)
    assert np.array_equal(Classifier(**small).fit(X, y).predict_proba(X), first)
    free = {**small, "random_state": None}
    one, other = Classifier(**free).fit(X, y), Classifier(**free).fit(X, y)
    assert not np.array_equal(one.predict_proba(X), other.predict_proba(X))
    repeated = Classifier(**{**small, "random_state": one.record_.seed}).fit(X, y)
    assert np.array_equal(repeated.predict_proba(X), one.predict_proba(X))


@pytest.mark.slow
def test_a_random_state_object_is_drawn_from(iris, small):
    X, y = iris
    drawn = [Classifier(**{**small, "random_state": np.random.RandomState(5)}).fit(X, y).record_.seed for _ in range(2)]
    assert drawn[0] == drawn[1] == np.random.RandomState(5).randint(2**31 - 1)


# Rows alone and together.


@pytest.mark.slow
def test_a_prediction_depends_on_its_own_row_alone(iris, small):
    X, y = iris
    order = np.random.default_rng(0).permutation(150)
    for predict in (
        Regressor(**small).fit(X, X[:, 0]).predict,
        Classifier(**small).fit(X, y).predict_proba,
        Classifier(**small).fit(X, np.eye(3, dtype=int)[y]).predict_proba,
    ):
        whole = predict(X)
        assert np.array_equal(predict(X[order]), whole[order])
        assert np.array_equal(np.concatenate([predict(X[i : i + 1]) for i in range(20)]), whole[:20])
        assert np.array_equal(np.concatenate([predict(X[i : i + 7]) for i in range(0, 70, 7)]), whole[:70])


# Splits.


@parametrize_one_quick(
    ("rows", "fraction", "train", "valid"), [(19, 0.2, 19, 19), (20, 0.2, 16, 4), (40, 0.0, 40, 40), (40, 0.5, 20, 20)]
)
def test_few_rows_are_not_held_out(iris, small, rows, fraction, train, valid):
    X, _ = iris
    regressor = Regressor(**small, validation_fraction=fraction).fit(X[:rows], X[:rows, 0])
    assert regressor.record_.data.rows == SetSizes(train, valid, 0)


@pytest.mark.slow
def test_validation_data_is_what_the_network_is_chosen_by(iris, small):
    X, y = iris
    classifier = Classifier(**small).fit(X[:100], y[:100], validation_data=(X[100:], y[100:]))
    record = classifier.record_
    assert record.data.rows == SetSizes(100, 50, 0)
    plain = dataclasses.replace(record.predictor, temperature=1.0)
    expected = log_loss(y[100:], plain.predict(X[100:]), labels=[0, 1, 2])
    assert classifier.history_["valid_loss"][-1] == pytest.approx(expected, rel=1e-4)
    with pytest.raises(RequestError, match="y holds the class 9"):
        classifier.fit(X, y, validation_data=(X[:2], [0, 9]))


# Weights.


@pytest.mark.slow
def test_a_row_of_weight_zero_counts_nowhere(iris, small):
    X, y = iris
    weights = np.where(np.arange(150) % 3 == 0, 0.0, 2.0)
    wild = np.where(weights[:, None] == 0, 1e6, X)
    weighted = Classifier(**small).fit(wild, np.where(weights == 0, 5, y), sample_weight=weights)
    removed = Classifier(**small).fit(X[weights > 0], y[weights > 0])
    assert weighted.classes_.tolist() == [0, 1, 2]
    np.testing.assert_allclose(weighted.predict_proba(X), removed.predict_proba(X), rtol=1e-5)


def test_weights_matter_and_their_scale_does_not(iris, small):
    X, y = iris
    weights = np.where(y == 2, 10.0, 1.0)
    plain = Classifier(**small).fit(X, y).predict(X)
    weighted = Classifier(**small).fit(X, y, sample_weight=weights)
    scaled = Classifier(**small).fit(X, y, sample_weight=4.0 * weights)
    assert np.sum(weighted.predict(X) == 2) > np.sum(plain == 2)
    assert np.array_equal(weighted.predict_proba(X), scaled.predict_proba(X))


# Warm starts.


def test_a_warm_start_goes_on_with_parameters_optimiser_and_scaler(iris, small):
    X, y = iris
    classifier = Classifier(**small, warm_start=True).fit(X, y)
    first, before = classifier.record_, classifier.predict_proba(X)
    updates = int(first.state.optimiser.update)
    classifier.fit(X, y)
    second = classifier.record_
    assert int(second.state.optimiser.update) == 2 * updates
    assert second.history["train_loss"][0] < first.history["train_loss"][0]
    assert second.history["train_loss"][-1] < first.history["train_loss"][-1]
    assert second.predictor.scaler is first.predictor.scaler
    assert np.array_equal(first.predictor.predict(X), before)  # the earlier record outlives the later training
    cold = Classifier(**small).fit(X, y).fit(X, y)
    assert np.array_equal(cold.predict_proba(X), before)


def test_a_warm_start_allows_another_rate_but_no_other_network_or_classes(iris, small):
    X, y = iris
    classifier = Classifier(**small, warm_start=True).fit(X, y)
    classifier.set_params(optimiser__learning_rate=0.005).fit(X, y)
    assert classifier.history_["learning_rate"][-1] == pytest.approx(0.005)
    with pytest.raises(RequestError, match="`model` has changed"):
        classifier.set_params(model__widths=(5,)).fit(X, y)
    with pytest.raises(RequestError, match="y holds the class 3"):
        classifier.set_params(model__widths=(16,)).fit(X, y + 1)


# The recipe for tables, where nothing else is asked for.

QUICK = {"stopping__epochs": 6.0, "model__widths": (8, 8), "batches__size": 32}


def quick(kind, **parameters):
    """An estimator with the recipe for tables, small enough for a test."""
    return kind(random_state=0, **parameters).set_params(**QUICK)


def rates(record):
    return np.asarray(record.history["learning_rate"])


def test_the_default_learns_a_table_with_holes_and_words_and_reads_strange_ones():
    """Nothing is set: numbers and categories, some missing, one with many values, and at last one never seen."""
    frame, y = table(200)
    frame["town"] = [f"town {number % 17}" for number in range(200)]
    classifier = Classifier(random_state=0).fit(frame[:160], y[:160])
    record = classifier.record_
    assert record.recipe == dataclasses.replace(defaults.table("classes", 160), split=record.recipe.split)
    assert record.outcome.name == "finished"
    assert record.predictor.network.inputs.tables[0].shape == (18, 8)
    assert classifier.score(frame[160:], y[160:]) > 0.8
    strange = frame[160:].assign(colour="violet", town="nowhere", size=np.nan)
    found = classifier.predict_proba(strange)
    np.testing.assert_allclose(found.sum(1), 1.0, rtol=1e-5)


def test_a_knob_of_the_network_leaves_the_recipe_for_tables(iris):
    X, y = iris
    classifier = quick(Classifier).set_params(model__dropout=0.3).fit(X, y)
    recipe = classifier.record_.recipe
    assert isinstance(recipe.optimiser, RatesByKind)
    assert (float(recipe.model.dropout), recipe.model.parametrisation) == (0.3, "ntk")
    assert recipe.stopping.keep == "best"
    assert len(rates(classifier.record_)) == 6  # one validation an epoch
    assert rates(classifier.record_).max() > 0.005


@pytest.mark.slow
def test_a_part_of_another_kind_brings_the_general_recipe(iris):
    X, y = iris
    classifier = Classifier(random_state=0, stopping=Patience(initial_examples=300, initial_epochs=1, epochs=3)).fit(
        X, y
    )
    assert classifier.record_.recipe.model == defaults.classification().model
    assert isinstance(classifier.record_.recipe.optimiser, MovingAverage)


def test_a_warm_start_goes_on_learning_though_its_schedule_had_ended(iris):
    """Each training has its own waves, from the parameters that the last one left."""
    X, _ = iris
    regressor = quick(Regressor, warm_start=True).fit(X[:, :3], X[:, 3])
    first = regressor.record_
    regressor.fit(X[:, :3], X[:, 3])
    second = regressor.record_
    np.testing.assert_allclose(rates(second), rates(first), rtol=1e-6)
    assert rates(second).max() > 0.02
    assert second.history["train_loss"][0] < first.history["train_loss"][0]
    assert second.history["valid_loss"][0] < first.history["valid_loss"][0]


@pytest.mark.slow
def test_a_warm_start_keeps_its_network_when_the_table_grows(iris, monkeypatch):
    """A larger table would have a larger network."""
    monkeypatch.setattr(defaults, "SMALL_TABLE_ROWS", 100)
    X, y = iris
    stopping = Off(epochs=2.0)
    classifier = Classifier(random_state=0, stopping=stopping, warm_start=True).fit(X[:90], y[:90]).fit(X, y)
    assert classifier.record_.recipe.model.widths == (128,) * 3
    assert Classifier(stopping=stopping).fit(X, y).record_.recipe.model.widths == (256,) * 3


def test_passes_have_the_general_recipe_since_nobody_knows_how_many_will_come(iris):
    X, y = iris
    classifier = Classifier(random_state=0).partial_fit(X, y, classes=[0, 1, 2])
    assert classifier.record_.recipe.model == defaults.classification().model
    assert isinstance(classifier.record_.recipe.optimiser, MovingAverage)
    before = classifier.record_.history["train_loss"][0]
    assert classifier.partial_fit(X, y).record_.history["train_loss"][1] < before
    with pytest.raises(RequestError, match=r"to which a pass cannot be added\. Use `warm_start=True` and `fit`"):
        quick(Classifier).fit(X, y).partial_fit(X, y)


def test_several_labels_of_a_table_are_learned(iris):
    X, y = iris
    labels = np.stack([y > 0, y > 1], axis=1).astype(int)
    classifier = quick(Classifier).set_params(stopping__epochs=30.0).fit(X, labels)
    assert isinstance(classifier.record_.recipe.criterion.loss, SigmoidLoss)
    assert classifier.predict(X).shape == (150, 2)
    assert np.mean(classifier.predict(X) == labels) > 0.85


# Sparse inputs.


@pytest.mark.slow
def test_sparse_rows_give_what_dense_rows_give(small):
    draw = np.random.default_rng(0)
    X = draw.normal(size=(100, 6)) * (draw.random((100, 6)) < 0.3)
    y = (X.sum(1) > 0).astype(int)
    dense = Classifier(**small, scaler=MaxAbs()).fit(X, y)
    for form in (sparse.csr_array, sparse.csc_matrix, sparse.coo_array):
        thin = Classifier(**small, scaler=MaxAbs()).fit(form(X), y)
        assert np.array_equal(thin.predict_proba(form(X)), dense.predict_proba(X))


def test_sparse_rows_too_large_to_write_out_are_refused_with_the_memory_they_need(small):
    wide = sparse.csr_array((100_000, 50_000_000), dtype=np.float64)
    with pytest.raises(RequestError, match="GiB"):  # embedded inputs are read from dense rows
        Regressor(**{**small, "model": Mlp(widths=(16,), inputs=Embedded())}).fit(wide, np.arange(100_000.0))
    with pytest.raises(RequestError, match=r"the network has .* parameters, and training needs .* GiB"):
        Regressor(**{**small, "model": Mlp(widths=(1000,))}).fit(wide, np.arange(100_000.0))


# Missing values and tables.


@pytest.mark.slow
def test_missing_numbers_are_filled_and_told_to_the_network(small):
    draw = np.random.default_rng(0)
    X = draw.normal(size=(300, 2))
    absent = draw.random(300) < 0.4
    X[absent, 0] = np.nan
    classifier = Classifier(**small).fit(X, absent)
    assert classifier.score(X, absent) > 0.98
    with pytest.raises(ValueError, match="infinity"):
        classifier.predict([[np.inf, 0.0]])
    with pytest.raises(ValueError, match="infinity"):
        Classifier(**small).fit([[np.inf, 0.0]] * 20, [0, 1] * 10)


def table(rows: int = 240):
    """Words, declared categories, booleans and numbers with holes; the class follows from them."""
    draw = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "size": draw.normal(size=rows),
            "colour": draw.choice(["red", "green", "blue"], rows),
            "shape": pd.Categorical(draw.choice(["round", "flat"], rows)),
            "old": draw.random(rows) < 0.5,
            "count": draw.integers(0, 9, rows),
        }
    )
    y = np.where((frame["colour"] == "red") | (frame["shape"] == "flat"), "sell", "keep")
    frame.loc[::7, "size"] = np.nan
    frame.loc[3::50, "colour"] = None
    return frame, y


@pytest.mark.slow
def test_a_table_of_words_and_holes_is_encoded_as_it_was_in_training(small):
    frame, y = table()
    classifier = Classifier(**small).fit(frame, y)
    assert classifier.score(frame, y) > 0.93
    assert classifier.feature_names_in_.tolist() == list(frame.columns)
    assert classifier.n_features_in_ == 5
    kinds = {column.name: column.kind for column in classifier.record_.data.columns}
    assert kinds == {"size": "number", "colour": "category", "shape": "category", "old": "category", "count": "number"}
    whole = classifier.predict_proba(frame)
    part = frame.iloc[5:6]  # one row shows one colour only: the schema must be the one of training
    assert np.array_equal(classifier.predict_proba(part)[0], whole[5])
    strange = frame.assign(colour="violet")
    assert classifier.predict(strange).shape == (240,)
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        classifier.predict(frame[frame.columns[::-1]])
    with pytest.raises(RequestError, match="give such a frame here too"), pytest.warns(UserWarning, match="names"):
        classifier.predict(frame.to_numpy())


def test_a_frame_of_numbers_is_an_array_with_names(iris, small):
    X, y = iris
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    named = Classifier(**small).fit(frame, y)
    assert named.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert np.array_equal(named.predict_proba(frame), Classifier(**small).fit(X, y).predict_proba(X))
    assert [column.name for column in named.record_.data.columns] == ["a", "b", "c", "d"]


@pytest.mark.slow
def test_infinite_values_in_a_table_are_refused(small):
    frame, y = table()
    frame.loc[4, "size"] = np.inf
    with pytest.raises(RequestError, match="`size`"):
        Classifier(**small).fit(frame, y)


# A network and a loss of the user's own.


def squared_error(model, batch, key):
    return jnp.mean((jax.vmap(model)(batch.inputs) - batch.targets) ** 2)


@pytest.mark.slow
def test_a_built_network_and_a_plain_loss_are_trained_as_they_are(iris, small):
    X, _ = iris
    network = Mlp(widths=(16,)).build((3,), 1, key=jax.random.key(5))
    before = np.asarray(network.output.weight)
    regressor = clone(Regressor(**{**small, "model": network, "criterion": squared_error}))
    assert regressor.fit(X[:, :3], X[:, 3]).score(X[:, :3], X[:, 3]) > 0.7
    assert np.array_equal(network.output.weight, before)
    regressor.partial_fit(X[:, :3], X[:, 3])
    assert regressor.score(X[:, :3], X[:, 3]) > 0.7


# How a run is conducted, and what cannot be done.


def test_time_runs_out_with_the_best_network_so_far(iris, small, capsys):
    X, y = iris
    shared = {**small, "stopping": Off(epochs=1000)}
    classifier = Classifier(**shared, max_time=1e-9, verbose=True).fit(X, y)
    assert classifier.record_.outcome.name == "out_of_time"
    assert classifier.n_iter_ < 1000
    assert capsys.readouterr().out.startswith("age ")
    assert classifier.predict(X).shape == (150,)


@pytest.mark.parametrize(
    ("parameters", "fitting", "kind", "message"),
    [
        ({"validation_fraction": 1.0}, {}, RequestError, r"`validation_fraction` must lie in \[0, 1\)"),
        ({"validation_fraction": "half"}, {}, RequestError, "`validation_fraction`"),
        ({"max_time": -1}, {}, RequestError, "`max_time`"),
        ({"optimiser": "adam"}, {}, RequestError, "expected an optimiser such as"),
        ({"scaler": MaxAbs}, {}, RequestError, "scaler` must be an instance of"),
        ({"model": 3}, {}, TypeError, "expected a model such as"),
        ({"criterion": 3}, {}, TypeError, "expected a criterion such as"),
        ({"class_weight": {7: 1.0}}, {}, RequestError, "not a class of the target"),
        ({"random_state": -1}, {}, RequestError, "`seed`"),
        ({}, {"validation_data": 3}, RequestError, "`validation_data` must be"),
        ({}, {"sample_weight": -np.ones(150)}, RequestError, "at least 0"),
        ({}, {"sample_weight": np.zeros(150)}, ValueError, "zero"),
        ({}, {"y": None}, ValueError, "requires y to be passed"),
        ({}, {"y": np.zeros(150)}, RequestError, "one class"),
        ({}, {"y": np.linspace(0, 1, 150)}, ValueError, "continuous"),
        ({}, {"y": np.arange(300).reshape(150, 2)}, ValueError, "1d array"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_line(iris, small, parameters, fitting, kind, message):
    X, y = iris
    with pytest.raises(kind, match=message):
        Classifier(**{**small, **parameters}).fit(**{"X": X, "y": y, **fitting})


def test_a_column_without_values_is_dropped_with_a_warning():
    frame = pd.DataFrame({"a": np.arange(40.0) % 7, "m": [None] * 40, "c": ["x", "y"] * 20})
    short = Off(epochs=2)
    with pytest.warns(UserWarning, match="column `m` has no values: dropped"):
        model = Classifier(model=Mlp(widths=(4,)), stopping=short).fit(frame, np.arange(40) % 2)
    assert model.predict(frame).shape == (40,)
    with pytest.raises(ValueError, match="every input is missing"):
        Classifier(model=Mlp(widths=(4,)), stopping=short).fit(np.full((40, 2), np.nan), np.arange(40) % 2)
    with pytest.raises(ValueError, match=r"3\.5 in every row"):
        Regressor(model=Mlp(widths=(4,)), stopping=short).fit(frame[["a"]], np.full(40, 3.5))
