"""What a denoising auto-encoder knows (row A13), against densities that are known, in 64 bits where they are exact."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise import train
from gradwise.criteria.corruption import GaussianNoise
from gradwise.criteria.reconstruction import Reconstruction, SquaredError
from gradwise.data.batches import Reshuffled
from gradwise.data.scaling import NoScaling as Unscaled
from gradwise.data.splits import HoldOut
from gradwise.evaluation.generative.denoising_score import denoising_score, reconstruction_gap, small_noise, tangents
from gradwise.models.activations import Identity, Tanh
from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.pretraining.layer_recipes import learner
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import Dataset, Inputs
from gradwise.training.stopping import Off

DEVIATION = 0.3


@pytest.fixture
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def curve(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points on an arc of radius 2 in the plane, and their directions along it."""
    angle = np.random.default_rng(seed).uniform(-1.2, 1.2, count)
    points = 2.0 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return points, np.stack([-np.sin(angle), np.cos(angle)], axis=1)


def blurred_score(points: np.ndarray, centres: np.ndarray, deviation: float) -> np.ndarray:
    """The slope of the log-density of a mixture of normals of one deviation at these centres."""
    gaps = centres[None] - points[:, None]
    logs = -np.sum(gaps**2, axis=2) / (2 * deviation**2)
    shares = np.exp(logs - logs.max(1, keepdims=True))
    return np.einsum("nm,nmd->nd", shares / shares.sum(1, keepdims=True), gaps) / deviation**2


@pytest.fixture(scope="module")
def learned() -> Callable:
    """The reconstruction of a denoising auto-encoder trained on the arc through `fit`."""
    points, _ = curve(2000, 0)
    recipe = replace(
        learner("denoising", 2),
        model=MlpAutoEncoder(widths=(48, 48), activation=Tanh(), tied=False),
        criterion=Reconstruction(SquaredError(), corruption=GaussianNoise(DEVIATION)),
        optimiser=Adam(learning_rate=0.003),
        batches=Reshuffled(100),
        stopping=Off(epochs=80.0, least_examples=160_000),
        scaler=Unscaled(),
        split=HoldOut(valid=0.02, test=0.0),
    )
    record = train(recipe, Dataset(points, np.zeros((len(points), 0)), Inputs()), key=jr.key(0))
    criterion, network = record.recipe.criterion, record.predictor.network
    return jax.jit(lambda x: criterion.decode(network, network(x)))


@pytest.mark.slow
def test_the_score_of_a_learned_curve(learned: Callable) -> None:
    """Against the exact score of the training points blurred by the noise, where the noise takes them."""
    centres, _ = curve(2000, 0)
    points, _ = curve(300, 1)
    points = points + DEVIATION * np.random.default_rng(2).normal(size=points.shape)
    found = np.asarray(denoising_score(learned, jnp.asarray(points, jnp.float32), DEVIATION))
    true = blurred_score(points, centres, DEVIATION)
    assert np.corrcoef(found.ravel(), true.ravel())[0, 1] > 0.95
    assert np.linalg.norm(found - true) < 0.3 * np.linalg.norm(true)
    # A denoiser that knows nothing (r = x, or r = the mean) has no such score.
    blind = (points.mean(0) - points) / DEVIATION**2
    assert np.corrcoef(blind.ravel(), true.ravel())[0, 1] < 0.6


@pytest.mark.slow
def test_tangents_of_a_learned_curve(learned: Callable) -> None:
    points, along = curve(40, 3)
    for point, direction in zip(points, along, strict=True):
        found, strengths = tangents(learned, jnp.asarray(point, jnp.float32), 2)
        assert abs(float(found[0] @ direction)) > 0.9
        assert strengths[0] > 2.0 * strengths[1]


def test_the_error_is_higher_off_the_data(learned: Callable) -> None:
    points, _ = curve(300, 4)
    elsewhere = np.random.default_rng(5).uniform(-3.0, 3.0, (600, 2))
    elsewhere = elsewhere[np.min(np.linalg.norm(elsewhere[:, None] - curve(500, 6)[0], axis=2), axis=1) > 0.5]
    gap = reconstruction_gap(learned, jnp.asarray(points, jnp.float32), jnp.asarray(elsewhere, jnp.float32))
    assert gap.off > 10.0 * gap.on
    assert gap.separated > 0.95


@pytest.mark.usefixtures("wide")
def test_the_best_denoiser_of_a_normal_density_has_its_score() -> None:
    """x ~ N(m, S): r(x) = m + S (S + s^2 I)^-1 (x - m), whose score is that of N(m, S + s^2 I), exactly."""
    draw = np.random.default_rng(7)
    root = draw.normal(size=(4, 4))
    covariance, mean, deviation = root @ root.T, draw.normal(size=4), 0.5
    blurred = covariance + deviation**2 * np.eye(4)
    gain = covariance @ np.linalg.inv(blurred)
    points = draw.normal(size=(20, 4))
    found = denoising_score(lambda x: mean + gain @ (x - mean), jnp.asarray(points), deviation)
    np.testing.assert_allclose(found, -(points - mean) @ np.linalg.inv(blurred), rtol=1e-9, atol=1e-12)
    directions, strengths = tangents(lambda x: mean + gain @ (x - mean), jnp.asarray(points[0]), 4)
    values, vectors = np.linalg.eigh(covariance)
    np.testing.assert_allclose(np.abs(np.asarray(directions) @ vectors[:, ::-1]), np.eye(4), atol=1e-9)
    np.testing.assert_allclose(strengths, (values / (values + deviation**2))[::-1], rtol=1e-9)


@pytest.mark.usefixtures("wide")
def test_the_expansion_for_small_noise() -> None:
    """E ||r(x + e) - x||^2, exact by Gauss-Hermite quadrature, less the expansion falls as s^4: slope 4.

    Without either of the two terms what is left falls only as s^2.
    """
    kind = MlpAutoEncoder(widths=(3,), activation=Tanh())
    network = kind.build((2,), 0, key=jr.key(8))
    network = jax.tree.map(lambda leaf: 1.7 * leaf + 0.2 if isinstance(leaf, jax.Array) else leaf, network)

    @jax.jit
    def one(x: jax.Array) -> jax.Array:
        return network.decode(network(x))

    x = jnp.asarray([0.4, -0.7])
    nodes, shares = np.polynomial.hermite_e.hermegauss(24)
    grid = jnp.asarray(list(itertools.product(nodes, nodes)))
    chances = np.asarray([a * b for a, b in itertools.product(shares, shares)]) / (2 * np.pi)
    assert chances.sum() == pytest.approx(1.0)
    deviations = np.asarray([0.16, 0.08, 0.04, 0.02])
    exact = np.asarray([chances @ np.sum((jax.vmap(one)(x + s * grid) - x) ** 2, axis=1) for s in deviations])
    terms = small_noise(one, x)

    def slope(left: np.ndarray) -> float:
        return float(np.polyfit(np.log(deviations), np.log(np.abs(left)), 1)[0])

    assert abs(float(terms.curvature)) > 0.05 * float(terms.contraction)
    assert slope(exact - np.asarray([terms.at(s) for s in deviations])) == pytest.approx(4.0, abs=0.15)
    for missing in (terms.contraction, terms.curvature):
        without = np.asarray([terms.at(s) - s**2 * missing for s in deviations])
        assert slope(exact - without) == pytest.approx(2.0, abs=0.2)


def test_the_encoder_is_not_the_reconstruction() -> None:
    """The contraction of the expansion is the reconstruction's: twice the decoder, four times the term."""
    kind = MlpAutoEncoder(widths=(3,), activation=Identity(), tied=False)
    network = kind.build((2,), 0, key=jr.key(9))
    x = jnp.asarray([0.3, 0.1])
    once = small_noise(lambda x: network.decode(network(x)), x)
    twice = small_noise(lambda x: 2.0 * network.decode(network(x)), x)
    assert float(twice.contraction) == pytest.approx(4.0 * float(once.contraction), rel=1e-5)
    assert float(once.curvature) == pytest.approx(0.0, abs=1e-6)  # a linear map has none


def test_refusals() -> None:
    with pytest.raises(RequestError, match=r"`deviation` must be positive, .* got 0"):
        denoising_score(lambda x: x, jnp.zeros((2, 3)), 0.0)
    with pytest.raises(RequestError, match=r"`count` must lie in \[1, 2\], .*; got 3\."):
        tangents(lambda x: x[:2], jnp.zeros(5), 3)
