"""Sparse codes (row A4): values, gradients, the target that is reached, and units for which it means nothing."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import special
from sklearn.datasets import load_digits

from gradwise import train
from gradwise.criteria.code_sparsity import BiasPenalty, KlToTarget, L1Codes, SquaredToTarget, StudentT
from gradwise.criteria.reconstruction import AbstractCodePenalty, Reconstruction, SquaredError
from gradwise.data.scaling import NoScaling as Unscaled
from gradwise.evaluation.run_findings import find_in_run
from gradwise.models.activations import Identity, Rectifier, Sigmoid, Tanh
from gradwise.models.auto_encoder import AsHidden, MlpAutoEncoder
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.pretraining.layer_recipes import learner
from gradwise.records.outcome import Outcome
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import Batch
from gradwise.specs.dataset import Dataset, Inputs
from gradwise.testing.contracts import check_part
from gradwise.training.stopping import Off
from tests.marks import parametrize_one_quick

KEY = jr.key(5)
ALL = [L1Codes(0.3), StudentT(0.3), SquaredToTarget(2.0), KlToTarget(2.0), BiasPenalty(0.5)]


def name_of(part: Any) -> str:
    return type(part).__name__


def a_batch(weights: Any) -> Batch:
    inputs = jnp.asarray(np.random.default_rng(1).uniform(0.0, 1.0, (6, 5)))
    weights = jnp.asarray(weights, inputs.dtype)
    return Batch(inputs, jnp.zeros((6, 0)), weights, (weights > 0).astype(inputs.dtype), jnp.asarray(6.0))


def a_network(activation: Any) -> Any:
    built = MlpAutoEncoder(widths=(4,), activation=activation).build((5,), 0, key=jr.key(0))
    return jax.tree.map(lambda leaf: leaf + 0.1 if eqx.is_array(leaf) else leaf, built)


@parametrize_one_quick("penalty", ALL, ids=name_of)
def test_the_gradient_of_the_criterion(penalty: AbstractCodePenalty) -> None:
    """Finite differences in 64 bits, parameter by parameter, with a slot out of use and unequal weights."""
    check_part(penalty)
    with jax.enable_x64(True):
        parts, rest = eqx.partition(a_network(Sigmoid()), eqx.is_inexact_array)
        flat, back = jax.flatten_util.ravel_pytree(parts)
        batch = a_batch([1.0, 1.0, 0.5, 2.0, 1.0, 0.0])

        @jax.jit
        def both(values: jax.Array) -> tuple[jax.Array, jax.Array]:
            model = eqx.combine(back(values), rest)
            with_it = Reconstruction(on_codes=(penalty,))(model, batch, key=KEY)[0]
            return with_it, with_it - Reconstruction()(model, batch, key=KEY)[0]

        slope = np.asarray(jax.jit(jax.grad(lambda v: both(v)[1]))(flat))
        steps = 1e-5 * np.eye(len(flat))
        rises = np.asarray([(both(flat + step)[1] - both(flat - step)[1]) / 2e-5 for step in steps])
        np.testing.assert_allclose(slope, rises, rtol=1e-5, atol=1e-8)
        assert np.abs(slope).max() > 1e-3


def test_values() -> None:
    """By hand, in NumPy; a slot out of use counts in nothing but the number of slots."""
    weights = np.asarray([1.0, 1.0, 1.0, 0.0])
    codes = np.asarray([[0.2, 0.9], [0.1, 0.4], [0.3, 0.5], [0.7, 0.7]])
    net = a_network(Sigmoid())
    mean = codes[:3].mean(0)
    kl = special.rel_entr(0.05, mean) + special.rel_entr(0.95, 1 - mean)
    expected = {
        L1Codes: np.abs(codes[:3]).sum() / 4,
        StudentT: np.log(1 + codes[:3] ** 2).sum() / 4,
        SquaredToTarget: 0.75 * ((0.05 - mean) ** 2).sum(),
        KlToTarget: 0.75 * kl.sum(),
        BiasPenalty: 0.75 * np.log1p(np.exp(np.asarray(net.encoder[0].bias))).sum(),
    }
    arrays = (jnp.zeros((4, 5)), jnp.asarray(codes, jnp.float32), jnp.asarray(weights, jnp.float32))
    for kind, value in expected.items():
        assert float(kind()(net, *arrays, key=KEY)) == pytest.approx(value, rel=1e-4), kind
    at_target = jnp.full((4, 2), 0.05)
    for kind in (KlToTarget, SquaredToTarget):  # the least value is 0, at the target
        assert float(kind()(net, jnp.zeros((4, 5)), at_target, jnp.ones(4), key=KEY)) == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("penalty", ALL, ids=name_of)
@pytest.mark.parametrize("code", [0.0, 1.0])
def test_finite_at_the_ends_and_on_an_empty_batch(penalty: AbstractCodePenalty, code: float) -> None:
    """Codes at 0 or 1 in 32 bits: value and slope are finite, and the slope of the divergence leads back inside."""
    net = a_network(Sigmoid())

    def of(codes: jax.Array, weights: jax.Array) -> jax.Array:
        return penalty(net, jnp.zeros((3, 5)), codes, weights, key=KEY)

    value, slope = jax.jit(jax.value_and_grad(of))(jnp.full((3, 2), code), jnp.ones(3))
    assert np.isfinite(value)
    assert np.all(np.isfinite(slope))
    if isinstance(penalty, (KlToTarget, SquaredToTarget)):
        assert np.all(slope > 0 if code else slope < 0)
    if isinstance(penalty, L1Codes) and code == 0.0:
        assert np.all(np.asarray(slope) == 0)  # a unit that is off is not pushed
    value, slope = jax.jit(jax.value_and_grad(of))(jnp.full((3, 2), code), jnp.zeros(3))
    assert float(value) == 0.0
    assert np.all(np.asarray(slope) == 0)


@pytest.mark.slow
@pytest.mark.parametrize("penalty", [KlToTarget(10.0), SquaredToTarget(100.0)], ids=name_of)
def test_mean_activation_reaches_the_target(penalty: AbstractCodePenalty) -> None:
    """On digits every unit's mean goes to the target, from about a half at the start."""
    rows = load_digits().data / 16.0
    recipe = replace(
        learner("sparse", 40),
        criterion=Reconstruction(on_codes=(penalty,)),
        scaler=Unscaled(),
        optimiser=Adam(learning_rate=0.01),
        stopping=Off(epochs=20.0, least_examples=len(rows) * 20),
    )
    record = train(recipe, Dataset(rows, np.zeros((len(rows), 0)), Inputs()), key=jr.key(0))
    begun = recipe.model.build((64,), 0, key=jr.key(0))
    assert float(jnp.mean(jax.vmap(lambda x: begun(x))(jnp.asarray(rows, jnp.float32)))) > 0.35
    means = record.predictor.predict(rows).mean(0)
    assert means.mean() == pytest.approx(0.05, abs=0.02)
    assert means.max() < 0.12


@pytest.mark.parametrize("activation", [Tanh(), Identity(), Rectifier()], ids=name_of)
def test_a_divergence_is_refused_where_codes_are_no_probabilities(activation: Any) -> None:
    criterion = Reconstruction(SquaredError(), on_codes=(KlToTarget(1.0),))
    with pytest.raises(
        RequestError, match=rf"KlToTarget .* the code \({name_of(activation)}\) lie in .* Use Sigmoid\(\)"
    ):
        jax.jit(lambda: criterion(a_network(activation), a_batch(np.ones(6)), key=KEY)[0])()


def test_findings_where_sparsity_does_not_fit_the_units() -> None:
    history: dict[str, list[Any]] = {"age_examples": [], "best": []}
    train = Dataset(np.zeros((2, 3)), np.zeros((2, 0)), Inputs())

    def said(activation: Any, penalty: AbstractCodePenalty) -> list[str]:
        model = MlpAutoEncoder(widths=(10,), activation=Sigmoid(), code_activation=activation)
        recipe = replace(learner("sparse", 10), model=model, criterion=Reconstruction(on_codes=(penalty,)))
        return [one.what for one in find_in_run(recipe, history, Outcome("patience", 0), train) if one.row == "A4"]

    for penalty in (L1Codes(), StudentT(), SquaredToTarget()):
        assert "(Tanh)" in said(Tanh(), penalty)[0]
        for fine in (Sigmoid(), Rectifier(), Identity(), AsHidden()):
            assert said(fine, penalty) == []
    assert "undone by weights" in said(Sigmoid(), BiasPenalty())[0]
    assert len(said(Tanh(), BiasPenalty())) == 2
