"""Learners of features as transformers: what they compute, what they choose, and scikit-learn's contract."""

import pickle
from unittest import SkipTest

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.special import expit
from scipy.stats import entropy
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils.estimator_checks import check_transformer_general, parametrize_with_checks

from gradwise.criteria.corruption import GaussianNoise, Masking
from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.reconstruction import CrossEntropy, Reconstruction, SquaredError
from gradwise.criteria.supervised import Supervised
from gradwise.data.batches import Reshuffled
from gradwise.data.scaling import MaxAbs, Standardise, UnitRange
from gradwise.data.scaling import NoScaling as Unscaled
from gradwise.estimators import RBM, AutoEncoder, ContractiveAutoEncoder, DenoisingAutoEncoder, SparseCoding
from gradwise.models.activations import Identity
from gradwise.models.auto_encoder import MlpAutoEncoder as Encoder
from gradwise.models.restricted_boltzmann import Rbm
from gradwise.models.sparse_coding import SparseDictionary as Dictionary
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.runtime.errors import RequestError
from gradwise.training.stopping import Off
from tests.marks import parametrize_one_quick

TINY = {
    "model": Encoder(widths=(3,)),
    "batches": Reshuffled(size=32),
    "stopping": Off(epochs=20),
    "validation_fraction": 0.0,
    "random_state": 0,
}

# What is computed.


def test_a_linear_auto_encoder_finds_the_principal_subspace(iris):
    X, _ = iris
    learner = AutoEncoder(
        model=Encoder(widths=(2,), activation=Identity()),
        scaler=Standardise(),
        batches=Reshuffled(size=150),
        optimiser=Adam(learning_rate=0.02),
        stopping=Off(epochs=600),
        validation_fraction=0.0,
        random_state=0,
    ).fit(X)
    scaled = (X - X.mean(0)) / X.std(0)
    best = PCA(2).fit(scaled)
    expected = best.inverse_transform(best.transform(scaled)) * X.std(0) + X.mean(0)
    np.testing.assert_allclose(learner.inverse_transform(learner.transform(X)), expected, atol=0.02)


@pytest.fixture(scope="module")
def learned(iris):
    X, _ = iris
    return DenoisingAutoEncoder(**TINY, scaler=UnitRange()).fit(X[:100], validation_data=X[100:])


@pytest.mark.slow
def test_features_scores_and_the_way_back_are_those_of_the_formula(iris, learned):
    X, _ = iris
    network = learned.record_.predictor.network
    weight, bias = (np.asarray(part, np.float64) for part in (network.encoder[0].weight, network.encoder[0].bias))
    low, spread = X[:100].min(0), np.ptp(X[:100], axis=0)
    scaled = np.clip((X - low) / spread, 0.0, 1.0)
    codes = expit(scaled @ weight.T + bias)
    np.testing.assert_allclose(learned.transform(X), codes, atol=1e-6)
    logits = codes @ weight + np.asarray(network.decoder[0].bias)
    np.testing.assert_allclose(learned.inverse_transform(codes), low + spread * expit(logits), atol=1e-5)
    with pytest.raises(RequestError, match="X has 2 columns, but there are 3 features"):
        learned.inverse_transform(codes[:, :2])
    padded = jnp.pad(jnp.asarray(scaled[100:], jnp.float32), ((0, 462), (0, 0)))
    spoilt, _ = Masking(0.25)(padded, key=jax.random.key(0))
    logits = expit(np.asarray(spoilt[:50]) @ weight.T + bias) @ weight + np.asarray(network.decoder[0].bias)
    errors = np.sum(np.logaddexp(0.0, logits) - scaled[100:] * logits, axis=1)
    assert learned.score(X[100:]) == pytest.approx(-errors.mean(), rel=1e-5)
    assert learned.score(X[100:]) == pytest.approx(-learned.record_.metrics["valid"]["denoising_error"], rel=1e-9)
    assert learned.record_.task == "inputs"


def test_features_depend_on_their_own_row_alone_and_on_the_seed(iris, learned):
    X, _ = iris
    whole = learned.transform(X)
    assert np.array_equal(np.concatenate([learned.transform(X[i : i + 1]) for i in range(5)]), whole[:5])
    assert np.array_equal(pickle.loads(pickle.dumps(learned)).transform(X), whole)
    again, other = clone(learned), clone(learned).set_params(random_state=1)
    assert np.array_equal(again.fit(X[:100], np.arange(100), validation_data=X[100:]).transform(X), whole)
    assert not np.array_equal(other.fit(X[:100], validation_data=X[100:]).transform(X), whole)


def test_features_have_names_and_come_as_frames(iris, learned):
    X, _ = iris
    assert learned.get_feature_names_out().tolist() == [f"denoisingautoencoder{number}" for number in range(3)]
    frame = pickle.loads(pickle.dumps(learned)).set_output(transform="pandas").transform(X)
    assert isinstance(frame, pd.DataFrame)
    assert frame.columns.tolist() == learned.get_feature_names_out().tolist()


# What is chosen.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scaler", "shift", "loss", "corruption"),
    [
        (None, 0.0, CrossEntropy, Masking),
        (UnitRange(), 0.0, CrossEntropy, Masking),
        (Unscaled(), 0.0, CrossEntropy, Masking),
        (Unscaled(), 0.5, SquaredError, GaussianNoise),
        (Standardise(), 0.0, SquaredError, GaussianNoise),
    ],
)
def test_the_recommended_criterion_follows_the_range_of_the_scaled_inputs(scaler, shift, loss, corruption):
    X = np.random.default_rng(0).random((40, 4)) + shift
    criterion = DenoisingAutoEncoder(**TINY, scaler=scaler).fit(X).record_.recipe.criterion
    assert isinstance(criterion.loss, loss)
    assert isinstance(criterion.corruption, corruption)


def test_a_criterion_that_cannot_mean_the_inputs_is_refused():
    X = np.random.default_rng(0).normal(size=(40, 4))
    with pytest.raises(RequestError, match=r"takes inputs in \[0, 1\].*UnitRange"):
        AutoEncoder(**TINY, scaler=Standardise(), criterion=Reconstruction(CrossEntropy())).fit(X)
    with pytest.raises(RequestError, match="`criterion` must learn from inputs alone"):
        AutoEncoder(**TINY, criterion=Supervised(SoftmaxLoss())).fit(X)


@pytest.mark.slow
def test_a_grid_search_reaches_nested_parameters_and_compares_sizes_by_the_score(iris):
    X, _ = iris
    grid = {"model__widths": [(1,), (3,)], "criterion__corruption__level": [0.4], "optimiser__learning_rate": [0.05]}
    parts = [(np.arange(100), np.arange(100, 150))]
    search = GridSearchCV(DenoisingAutoEncoder(**TINY), grid, cv=parts, refit=False, error_score="raise").fit(X)
    by_hand = DenoisingAutoEncoder(**TINY).set_params(**search.best_params_)
    assert by_hand.model.widths == (3,)
    assert by_hand.criterion.corruption.level == 0.4
    assert by_hand.fit(X[:100]).score(X[100:]) == search.best_score_ < 0


def test_a_pipeline_learns_from_the_features(iris):
    X, y = iris
    chain = Pipeline(
        [("features", DenoisingAutoEncoder(**TINY)), ("classes", LogisticRegression(C=1e4, max_iter=1000))]
    )
    chain.set_params(features__optimiser__learning_rate=0.05).fit(X[:100], y[:100])
    assert chain.score(X[100:], y[100:]) > 0.85
    assert chain["features"].optimiser.learning_rate == 0.05


# Data as it comes.


def test_columns_that_tell_nothing_do_no_harm():
    X = np.random.default_rng(0).random((40, 4))
    X[:, 2] = 5.0
    learner = AutoEncoder(**TINY).fit(X)
    assert np.all(learner.inverse_transform(learner.transform(X))[:, 2] == 5.0)
    flat = AutoEncoder(**TINY).fit(np.full((40, 4), 3.0))
    assert np.all(flat.inverse_transform(flat.transform(X)) == 3.0)


def test_sparse_rows_give_what_dense_rows_give():
    draw = np.random.default_rng(0)
    X = draw.normal(size=(40, 4)) * (draw.random((40, 4)) < 0.3)
    dense = AutoEncoder(**TINY, scaler=UnitRange()).fit(X)
    for learner in (AutoEncoder(**TINY, scaler=UnitRange()), AutoEncoder(**TINY)):
        assert np.array_equal(learner.fit(sparse.csr_array(X)).transform(sparse.csr_array(X)), dense.transform(X))
    assert isinstance(AutoEncoder(**TINY, scaler=MaxAbs()).fit(X).record_.recipe.criterion.loss, SquaredError)


def test_a_frame_of_words_is_encoded_and_has_no_way_back():
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"a": draw.random(40), "b": draw.random(40), "c": draw.choice(["x", "y"], 40)})
    learner = AutoEncoder(**TINY).fit(frame)
    assert learner.transform(frame).shape == (40, 3)
    assert not hasattr(learner, "inverse_transform")
    assert hasattr(AutoEncoder(), "inverse_transform")


# Passes.


@pytest.mark.slow
def test_passes_over_the_same_rows_are_the_epochs_of_one_fit(iris):
    X, _ = iris
    passes = DenoisingAutoEncoder(**TINY)
    for _ in range(20):
        passes.partial_fit(X)
    whole = DenoisingAutoEncoder(**TINY).fit(X)
    states = (passes.record_.state.parameters, whole.record_.state.parameters)
    for one, other in zip(*(jax.tree.leaves(state) for state in states), strict=True):
        assert np.array_equal(one, other)
    assert passes.n_iter_ == whole.n_iter_ == 20
    assert passes.record_.metric == "denoising_error"


def test_a_later_pass_keeps_the_criterion_of_the_first_and_refuses_what_it_cannot_mean(iris):
    X = np.random.default_rng(0).random((40, 4))
    learner = AutoEncoder(**TINY, scaler=Unscaled()).partial_fit(X)
    assert isinstance(learner.partial_fit(X).record_.recipe.criterion.loss, CrossEntropy)
    with pytest.raises(RequestError, match=r"takes inputs in \[0, 1\]"):
        learner.partial_fit(X + 1.0)


# Every learner.

LEARNERS = {
    ContractiveAutoEncoder: Encoder(widths=(3,)),
    RBM: Rbm(units=3),
    SparseCoding: Dictionary(units=3, iterations=10),
}


@parametrize_one_quick("kind", list(LEARNERS))
def test_every_learner_goes_there_and_back(iris, kind):
    X = (iris[0] > np.median(iris[0], axis=0)).astype(float)
    rate, units = Adam(learning_rate=0.02), LEARNERS[kind]
    learner = kind(**{**TINY, "model": units, "optimiser": rate, "stopping": Off(epochs=60)}).fit(X)
    back = learner.inverse_transform(learner.transform(X))
    assert np.mean((back - X) ** 2) < 0.5 * X.var(axis=0).mean()  # what one mean for all rows would leave is all of it
    assert learner.get_feature_names_out()[0] == f"{kind.__name__.lower()}0"
    assert learner.score(X) == pytest.approx(-learner.record_.metrics["train"][learner.record_.metric], rel=1e-9)
    if kind is RBM:  # units that knew nothing of one another would have the sum of their entropies
        assert -learner.score(X) < 0.8 * np.sum(entropy([X.mean(0), 1.0 - X.mean(0)]))


@parametrize_one_quick("kind", [RBM, SparseCoding])
def test_a_network_of_another_kind_keeps_the_contract_where_it_could_differ(kind):
    learner = kind(model=LEARNERS[kind], stopping=Off(epochs=2))
    check_transformer_general(kind.__name__, learner)


@pytest.mark.slow
@parametrize_with_checks([DenoisingAutoEncoder(model=Encoder(widths=(3,)), stopping=Off(epochs=2))])
def test_scikit_learns_contract_holds(estimator, check):
    try:
        check(estimator)
    except SkipTest as reason:
        if str(reason) != "SCIPY_ARRAY_API is not set: not checking array_api input":
            raise


def test_the_tags_say_what_is_true():
    for kind in (*LEARNERS, AutoEncoder, DenoisingAutoEncoder):
        tags = kind().__sklearn_tags__()
        assert tags.input_tags.sparse
        assert tags.input_tags.allow_nan
        assert not tags.target_tags.required
        assert not tags.no_validation
        assert not tags.non_deterministic
