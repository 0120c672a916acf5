"""Reconstruction losses (row A7), emphasis (row A5), and what an auto-encoder is judged by (row E20)."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import special
from sklearn.datasets import load_digits

from gradwise import train
from gradwise.criteria.corruption import AbstractCorruption, GaussianNoise, Masking
from gradwise.criteria.penalties import L2
from gradwise.criteria.reconstruction import (
    AbstractReconstructionLoss,
    CrossEntropy,
    Reconstruction,
    SquaredError,
    SquaredSigmoid,
    unit_range,
)
from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.pretraining.layer_recipes import learner
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import Batch
from gradwise.specs.dataset import Dataset, Inputs
from gradwise.specs.knobs import is_off
from gradwise.testing.contracts import check_part
from gradwise.training.stopping import Off

KEY = jr.key(3)
LOSSES = [CrossEntropy(), SquaredError(), SquaredSigmoid()]


class Even(AbstractCorruption):
    """Touches every other input, and sets it to 0.9."""

    def __call__(self, inputs: Any, *, key: Any) -> Any:
        touched = jnp.broadcast_to(jnp.arange(inputs.shape[1]) % 2 == 0, inputs.shape)
        return jnp.where(touched, 0.9, inputs), touched


def a_network() -> Any:
    built = MlpAutoEncoder(widths=(3,)).build((4,), 0, key=jr.key(0))
    return jax.tree.map(lambda leaf: leaf + 0.2 if eqx.is_array(leaf) else leaf, built)


def a_batch(weights: Any = (1.0, 1.0, 1.0, 1.0, 1.0)) -> Batch:
    inputs = jnp.asarray(np.random.default_rng(1).uniform(0.0, 1.0, (5, 4)), jnp.float32)
    weights = jnp.asarray(weights, jnp.float32)
    return Batch(inputs, jnp.zeros((5, 0)), weights, (weights > 0).astype(jnp.float32), jnp.asarray(50.0))


def by_hand(network: Any, given: np.ndarray, clean: np.ndarray) -> np.ndarray:
    """The cross-entropy of each input of each example, in NumPy and 64 bits."""
    weight, bias = np.asarray(network.encoder[0].weight, float), np.asarray(network.encoder[0].bias, float)
    outputs = special.expit(given @ weight.T + bias) @ weight + np.asarray(network.decoder[0].bias, float)
    return -clean * special.log_expit(outputs) - (1 - clean) * special.log_expit(-outputs)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda one: type(one).__name__)
def test_the_output_follows_the_loss(loss: AbstractReconstructionLoss) -> None:
    """The gradient, by finite differences in 64 bits, vanishes where the link of the output is the target."""
    check_part(loss)
    with jax.enable_x64(True):
        target = jnp.asarray([0.2, 0.5, 0.9])
        best = target if isinstance(loss, SquaredError) else special.logit(target)
        slopes = jax.jit(jax.grad(lambda o: jnp.sum(loss.elements(o, target))))
        np.testing.assert_allclose(loss.link(jnp.asarray(best)), target, rtol=1e-12)
        np.testing.assert_allclose(slopes(jnp.asarray(best)), 0.0, atol=1e-12)
        point = jnp.asarray([-1.3, 0.2, 2.0])
        rise = (loss.elements(point + 1e-6, target) - loss.elements(point - 1e-6, target)) / 2e-6
        np.testing.assert_allclose(slopes(point), rise, rtol=1e-7)


def test_cross_entropy_is_exact_where_the_sigmoid_is_saturated() -> None:
    """At log-odds of up to 1e4, in 32 bits: values as in SciPy's log domain, and two derivatives."""
    loss = CrossEntropy()
    slopes_of = jax.grad(lambda o, t: jnp.sum(loss.elements(o, t)))
    outputs = np.asarray([-1e4, -100.0, -20.0, -1.0, 0.0, 1.0, 20.0, 100.0, 1e4], np.float32)
    for target in (0.0, 0.3, 1.0):
        targets = np.full_like(outputs, target)
        found = jax.jit(loss.elements)(outputs, targets)
        wide = outputs.astype(float)
        expected = -target * special.log_expit(wide) - (1 - target) * special.log_expit(-wide)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
        slopes = jax.jit(slopes_of)(outputs, targets)
        np.testing.assert_allclose(slopes, special.expit(wide) - target, atol=1e-6)
        curved = jax.jit(jax.grad(lambda o, t: jnp.sum(slopes_of(o, t))))(outputs, targets)
        np.testing.assert_allclose(curved, special.expit(wide) * special.expit(-wide), atol=1e-6)


@pytest.mark.parametrize(("touched", "clean"), [(1.0, 1.0), (1.0, 0.5), (1.0, 0.0), (0.0, 1.0)])
def test_emphasis(touched: float, clean: float) -> None:
    """Weights as published, double (1, 0.5) and full (1, 0); the target is the clean input; slots out of use are not
    counted; the penalty counts B'/(B T)."""
    network, batch = a_network(), a_batch((1.0, 1.0, 0.5, 1.0, 0.0))
    criterion = Reconstruction(corruption=Even(), on_touched=touched, on_clean=clean, penalties=(L2(2.0),))
    total, terms = jax.jit(lambda: criterion(network, batch, key=KEY))()
    x = np.asarray(batch.inputs, float)
    even = np.arange(4) % 2 == 0
    elements = by_hand(network, np.where(even, 0.9, x), x) * np.where(even, touched, clean)
    np.testing.assert_allclose(terms["loss"], elements.sum(1), rtol=1e-5)
    weight = np.asarray(network.encoder[0].weight, float)
    expected = elements.sum(1) @ np.asarray(batch.weights) / 5 + 4 / (5 * 50) * 2.0 * (weight**2).sum()
    assert float(total) == pytest.approx(expected, rel=1e-5)
    assert is_off(criterion.on_clean) == (clean == 1.0)


def test_noise_depends_on_the_key_alone() -> None:
    criterion = Reconstruction(corruption=Masking(0.5))
    network, batch = a_network(), a_batch()
    one, same, other = (float(criterion(network, batch, key=key)[0]) for key in (KEY, KEY, jr.key(4)))
    assert one == same
    assert one != other


def test_measures_are_the_same_at_every_call_and_by_definition() -> None:
    network, x = a_network(), np.asarray(a_batch().inputs)
    found = Reconstruction(corruption=GaussianNoise(0.3), judged_by=Even()).measures(network, jnp.asarray(x))
    given = np.where(np.arange(4) % 2 == 0, 0.9, x)
    np.testing.assert_allclose(found["denoising_error"], by_hand(network, given, x).sum(1), rtol=1e-5)
    np.testing.assert_allclose(found["reconstruction_error"], by_hand(network, x, x).sum(1), rtol=1e-5)
    criterion = Reconstruction()
    first, second = (criterion.measures(network, jnp.asarray(x)) for _ in range(2))
    np.testing.assert_array_equal(first["denoising_error"], second["denoising_error"])
    score, loss = criterion.examples(network, jnp.asarray(x), jnp.zeros((5, 0)))
    np.testing.assert_array_equal(score, first[criterion.measured(None)[0]])
    np.testing.assert_array_equal(loss, first["reconstruction_error"])
    reconstructed = jax.vmap(lambda row: criterion.decode(network, network(row)))(jnp.asarray(x))
    elements = -x * np.log(reconstructed) - (1 - x) * np.log1p(-reconstructed)
    np.testing.assert_allclose(elements.sum(1), loss, rtol=1e-4)


def test_inputs_that_are_no_probabilities_are_refused() -> None:
    beyond = jnp.asarray([[0.0, 1.5]])
    for loss in (CrossEntropy(), SquaredSigmoid()):
        with pytest.raises(RequestError, match=r"takes inputs in \[0, 1\], .* lie in \[0, 1.5\].*UnitRange"):
            Reconstruction(loss).check_inputs(beyond)
        Reconstruction(loss).check_inputs(beyond / 2)
    Reconstruction(SquaredError()).check_inputs(-beyond)
    assert unit_range(beyond / 2)
    assert not unit_range(beyond)


@pytest.mark.slow
def test_learning_to_repair_on_digits() -> None:
    """A quarter of the pixels masked: who learned from spoilt digits repairs better and copies worse (rows A5, E20)."""
    rows = load_digits().data / 16.0
    found = {}
    for kind in ("plain", "denoising"):
        recipe = replace(
            learner(kind, 100),
            optimiser=Adam(learning_rate=0.003),
            stopping=Off(epochs=40.0, least_examples=len(rows) * 40),
        )
        record = train(recipe, Dataset(rows, np.zeros((len(rows), 0)), Inputs()), key=jr.key(0))
        assert record.metric == "denoising_error"
        found[kind] = record.metrics["valid"]
    plain, denoising = found["plain"], found["denoising"]
    assert denoising["denoising_error"] < 0.9 * plain["denoising_error"]
    assert denoising["reconstruction_error"] > plain["reconstruction_error"]


def test_contracts() -> None:
    check_part(Reconstruction(corruption=Masking(0.3), on_clean=0.5))
