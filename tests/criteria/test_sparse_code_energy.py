"""The sparse coding criterion: its gradient, what it learns beside PCA and scikit-learn, and the score that chooses."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import gradwise
from gradwise.criteria.penalties import L2
from gradwise.criteria.sparse_code_energy import SparseCode
from gradwise.curvature.proximal_gradient import lasso_codes
from gradwise.data.batches import Reshuffled
from gradwise.data.scaling import NoScaling
from gradwise.data.splits import HoldOut
from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.models.sparse_coding import PredictiveSparse, SparseDictionary
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.pretraining.layer_recipes import learner
from gradwise.pretraining.stack import pretrain
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import Batch
from gradwise.specs.dataset import Dataset, Inputs
from gradwise.specs.paths import replace, trainable
from gradwise.specs.recipe import Recipe
from gradwise.testing.contracts import check_part
from gradwise.training.model_files import load_predictor, save_predictor
from gradwise.training.stopping import Patience

UNITS, PENALTY = 40, 0.3


def test_contract() -> None:
    check_part(SparseCode(penalties=(L2(0.1, where="dictionary"),)))


def _digits() -> tuple[np.ndarray, np.ndarray]:
    """Training and new rows of the 8 x 8 digits."""
    from sklearn.datasets import load_digits

    rows = np.random.default_rng(0).permutation(load_digits().data / 16.0)
    return rows[:800], rows[1500:]


def _dataset(rows: np.ndarray) -> Dataset:
    return Dataset(rows, np.zeros((len(rows), 0)), Inputs())


def _recipe(model: Any, epochs: float = 20.0) -> Recipe:
    return Recipe(
        split=HoldOut(valid=0.1, test=0.0),
        scaler=NoScaling(),
        batches=Reshuffled(size=100),
        model=model,
        criterion=SparseCode(),
        optimiser=Adam(learning_rate=0.01),
        stopping=Patience(epochs=epochs),
    )


@pytest.fixture(scope="module")
def learned() -> Any:
    """A dictionary of the digits, learned through `fit`."""
    return gradwise.train(
        _recipe(SparseDictionary(units=UNITS, penalty=PENALTY)), _dataset(_digits()[0]), key=jr.key(0)
    )


def _batch(rows: jax.Array, weights: jax.Array, total: float) -> Batch:
    present = (weights > 0).astype(rows.dtype)
    return Batch(rows, jnp.zeros((len(rows), 0)), weights, present, jnp.asarray(total))


@pytest.mark.parametrize(
    "spec",
    [SparseDictionary(units=7, iterations=4000), PredictiveSparse(units=7, iterations=1000)],
    ids=["lasso", "psd"],
)
def test_the_gradient_is_that_of_the_least_energy(spec: SparseDictionary | PredictiveSparse) -> None:
    """Every parameter against differences of the optimal value, in 64 bits; atoms inside the ball and outside."""
    with jax.enable_x64(True):
        rows = jnp.asarray(np.random.default_rng(2).normal(size=(3, 4)))
        network = spec.build((4,), 0, key=jr.key(1))
        scales = jnp.linspace(0.4, 2.0, 7)[:, None]
        network = eqx.tree_at(lambda one: one.dictionary, network, scales * network.dictionary)
        moves, rest = trainable(network)
        flat, back = jax.flatten_util.ravel_pytree(moves)
        batch = _batch(rows, jnp.asarray([1.0, 2.0, 1.0]), 3.0)

        @jax.jit
        def value(point: jax.Array) -> jax.Array:
            return SparseCode()(eqx.combine(back(point), rest), batch, key=jr.key(0))[0]

        slope = np.asarray(jax.grad(value)(flat))
        step = 1e-5 * np.eye(len(flat))
        central = np.array([(value(flat + one) - value(flat - one)) / 2e-5 for one in step])
        assert np.abs(slope).max() > 0.1
        np.testing.assert_allclose(slope, central, atol=1e-7)


def test_unused_slots_and_penalties_count_as_in_every_criterion() -> None:
    rows = jnp.asarray(_digits()[0][:4], jnp.float32)
    network = SparseDictionary(units=5, iterations=20).build((64,), 0, key=jr.key(0))
    weights = jnp.asarray([1.0, 3.0, 0.0, 0.0])
    criterion = SparseCode(penalties=(L2(0.5, where="dictionary"),))
    value, terms = eqx.filter_jit(criterion)(network, _batch(rows, weights, 10.0), key=jr.key(0))
    energies = np.asarray(eqx.filter_jit(lambda one: one.energy(rows, one.codes(rows)))(network))
    np.testing.assert_allclose(terms["loss"], energies, rtol=1e-6)
    penalty = 0.5 * float(jnp.sum(network.dictionary**2))
    assert float(value) == pytest.approx((energies[0] + 3.0 * energies[1] + 0.2 * penalty) / 4.0, rel=1e-5)


@pytest.mark.slow
def test_a_learned_dictionary_beats_random_and_pca_and_comes_near_scikit_learn(learned: Any) -> None:
    """All four judged by scikit-learn's own lasso, on new digits at one penalty and one size."""
    from sklearn.decomposition import PCA, MiniBatchDictionaryLearning, sparse_encode

    train, new = _digits()

    def energy(atoms: np.ndarray) -> float:
        codes = sparse_encode(new, atoms, algorithm="lasso_cd", alpha=PENALTY, max_iter=5000)
        return float(np.mean(0.5 * ((new - codes @ atoms) ** 2).sum(1) + PENALTY * np.abs(codes).sum(1)))

    draw = np.random.default_rng(0).normal(size=(UNITS, 64))
    theirs = MiniBatchDictionaryLearning(
        UNITS, alpha=PENALTY, batch_size=100, max_iter=20, fit_algorithm="cd", random_state=0
    ).fit(train)
    ours = energy(np.asarray(learned.predictor.network.atoms, float))
    assert ours < 0.6 * energy(PCA(UNITS, random_state=0).fit(train).components_)
    assert ours < 0.4 * energy(draw / np.linalg.norm(draw, axis=1, keepdims=True))
    assert ours < 1.03 * energy(theirs.components_)
    assert learned.metric == "denoising_error"
    assert learned.task == "inputs"


@pytest.mark.slow
def test_a_saved_dictionary_encodes_as_before(learned: Any, tmp_path: Path) -> None:
    new = _digits()[1][:20]
    save_predictor(learned.predictor, tmp_path / "model.safetensors", about={})
    again, _ = load_predictor(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(new), learned.predictor.predict(new))


def test_features_have_actual_zeros_and_a_constant_row_is_no_trouble(learned: Any) -> None:
    new = _digits()[1]
    features = learned.predictor.predict(np.concatenate([new, np.zeros((1, 64)), np.ones((1, 64))]))
    assert 0.6 < np.mean(features[:-2] == 0) < 0.95
    assert np.all(features[-2] == 0)
    assert np.all(np.isfinite(features))


def test_the_energy_cannot_choose_the_penalty_but_the_denoising_error_can(learned: Any) -> None:
    """With ever smaller penalties the energy always falls; repairing fails at both ends (row E20)."""
    new = jnp.asarray(_digits()[1], jnp.float32)
    measure = eqx.filter_jit(SparseCode().measures)
    found = []
    for penalty in (1e-3, PENALTY, 8.0):
        network = eqx.tree_at(
            lambda one: one.penalty.value, learned.predictor.network, jnp.asarray(penalty, jnp.float32)
        )
        values = measure(network, new)
        assert set(values) == set(SparseCode().measured(None))
        found.append({name: float(jnp.mean(value)) for name, value in values.items()})
    small, chosen, large = found
    assert small["energy"] < chosen["energy"] < large["energy"]
    assert small["active_share"] > chosen["active_share"] > large["active_share"]
    assert chosen["denoising_error"] < min(small["denoising_error"], large["denoising_error"])


@pytest.mark.slow
def test_a_predictor_comes_near_the_codes_and_its_layers_can_be_stacked() -> None:
    train, new = _digits()
    layers = [
        _recipe(PredictiveSparse(units=units, penalty=0.1), epochs) for units, epochs in ((UNITS, 20.0), (16, 2.0))
    ]
    stack = pretrain(layers, _dataset(train), key=jr.key(0))
    network = stack.networks[0]
    rows = jnp.asarray(new, jnp.float32)
    codes, predicted = map(np.asarray, eqx.filter_jit(lambda one: (one.codes(rows), one.predicted(rows)))(network))
    unpulled = np.asarray(lasso_codes(network.atoms, rows, 0.1, 500))
    for exact, least in ((codes, 0.9), (unpulled, 0.6)):
        assert 1.0 - ((exact - predicted) ** 2).sum() / ((exact - exact.mean(0)) ** 2).sum() > least
    features = stack.encode(new)
    below = np.tanh(new @ np.asarray(stack.layers[0].weight).T + np.asarray(stack.layers[0].bias))
    above = np.tanh(below @ np.asarray(stack.layers[1].weight).T + np.asarray(stack.layers[1].bias))
    np.testing.assert_allclose(features, above, atol=1e-5)
    assert features.std(0).min() > 0.01


@pytest.mark.slow
def test_the_learner_by_name_and_constant_data() -> None:
    recipe = replace(learner("psd", 6), "stopping", Patience(epochs=2.0))
    assert isinstance(recipe.model, PredictiveSparse)
    assert recipe.model.units == 6
    for constant in (0.0, 1.0):
        record = gradwise.train(
            replace(recipe, "scaler", NoScaling()), _dataset(np.full((60, 5), constant)), key=jr.key(0)
        )
        assert not record.outcome.failed
        assert np.all(np.isfinite(record.predictor.predict(np.full((3, 5), constant))))


def test_another_network_is_refused_in_a_line() -> None:
    with pytest.raises(RequestError, match=r"which AutoEncoderNetwork lacks\. Use the model SparseDictionary or P"):
        gradwise.train(_recipe(MlpAutoEncoder(widths=(3,))), _dataset(_digits()[0][:60]), key=jr.key(0))
