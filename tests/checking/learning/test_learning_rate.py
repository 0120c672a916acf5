"""Rates against quadratics whose limits are known, planted rates on the digits, and a known noise scale."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.datasets import load_digits

from gradwise.checking.learning.learning_rate import estimate_noise, measure_rates, noise_scale, train_at_factors
from gradwise.checking.learning.learning_rate_findings import find_rates
from gradwise.checking.rehearsal import rehearse
from gradwise.checking.subject import Subject
from gradwise.records.finding import Finding
from tests.marks import parametrize_one_quick

KEY = jax.random.key(5)
CURVATURES = jnp.asarray([10.0, 4.0, 1.0, 0.5])


def _quadratic(rate: float) -> Subject:
    def loss(p: dict[str, jax.Array], batch: jax.Array) -> jax.Array:
        return 0.5 * jnp.sum(CURVATURES * p["w"] ** 2) + 0.0 * jnp.sum(batch)

    return Subject.of(loss, {"w": jnp.ones(4)}, jnp.zeros((16, 1)), optimiser=optax.sgd(rate))


def _codes(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.code for finding in findings]


def test_a_quadratic_diverges_beyond_two_over_lambda_and_not_below() -> None:
    factors = np.array([0.0, 0.97, 1.03])
    start, below, above = train_at_factors(_quadratic(0.2), factors, updates=200, key=KEY)
    assert np.allclose(start, 7.75)
    assert below[-1] < 1e-3
    assert above[-1] > 1e2


def test_the_eigenvalue_and_the_rate_are_the_known_ones() -> None:
    subject = _quadratic(0.3)
    measured = measure_rates(subject, rehearse(subject, key=KEY), key=KEY, ladder=False)
    assert measured.eigenvalue == pytest.approx(10.0, rel=1e-5)
    assert measured.limit == pytest.approx(0.2, rel=1e-5)
    assert measured.rate == pytest.approx(0.3, rel=1e-3)
    (note,) = find_rates(measured)
    assert (note.code, note.level, note.next) == ("GW505", "note", "optax.sgd(0.1)")


# --- the digits


def _digits(optimiser: Any, *, rate: float = 1.0) -> Subject:
    inputs, targets = load_digits(return_X_y=True)
    train = (jnp.asarray(inputs[:800] / 8 - 1, jnp.float32), jnp.asarray(targets[:800]))
    first, second = jax.random.split(jax.random.key(0))
    start = {
        "w": jax.random.normal(first, (64, 32)) / 8,
        "b": jnp.zeros(32),
        "v": jax.random.normal(second, (32, 10)) / 6,
        "c": jnp.zeros(10),
    }

    def loss(p: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
        outputs = jax.nn.relu(x @ p["w"] + p["b"]) @ p["v"] + p["c"]
        return optax.softmax_cross_entropy_with_integer_labels(outputs, y).mean()

    return Subject.of(loss, start, (train[0][:64], train[1][:64]), train=train, optimiser=optimiser)


@parametrize_one_quick(
    ("optimiser", "expected"),
    [
        (optax.sgd(0.1), []),
        (optax.sgd(100.0), ["GW501", "GW505"]),
        (optax.sgd(1e-4), ["GW502"]),
        (optax.adam(1e-3), []),
        (optax.adam(1.0), ["GW501"]),
        (optax.adam(1e-6), ["GW502"]),
    ],
    ids=["sgd", "sgd x 1000", "sgd / 1000", "adam", "adam x 1000", "adam / 1000"],
)
def test_planted_rates_are_found_and_sound_ones_raise_nothing(optimiser: Any, expected: list[str]) -> None:
    subject = _digits(optimiser)
    measured = measure_rates(subject, rehearse(subject, key=KEY), key=KEY)
    findings = find_rates(measured)
    assert _codes(findings) == expected
    assert measured.noise is not None
    if "GW501" in expected:
        assert findings[0].level == "error"
        assert 1e-4 < findings[0].evidence["best_factor"] < 0.05
    if "GW502" in expected:
        assert findings[0].level == "warning"
        assert findings[0].evidence["best_factor"] > 100


def test_a_rate_that_is_warmed_up_is_not_too_small_and_a_stand_in_says_nothing() -> None:
    warmed = _digits(optax.adam(optax.linear_schedule(0.0, 1e-3, 5000)))
    measured = measure_rates(warmed, rehearse(warmed, key=KEY), key=KEY)
    assert measured.warming
    assert _codes(find_rates(measured)) == []
    alone = _digits(None)
    none = measure_rates(alone, rehearse(alone, key=KEY), key=KEY)
    assert none.stand_in
    assert len(none.factors) == 0
    assert math.isnan(none.rate)
    assert find_rates(none) == ()


# --- the noise scale


def test_the_noise_scale_of_a_linear_model_is_the_known_one() -> None:
    # The gradient of mean(w . x) is the mean of x: its covariance is that of x, and its length that of the mean of x.
    generator = np.random.default_rng(0)
    inputs = jnp.asarray(generator.normal(size=(4096, 20)) * 3.0 + 0.5, jnp.float32)
    known = 20 * 9.0 / (20 * 0.25)

    def loss(p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        return jnp.mean(x @ p["w"])

    subject = Subject.of(loss, {"w": jnp.zeros(20)}, inputs[:128], train=inputs)
    found = noise_scale(subject, subject.parameters, key=KEY)
    assert found is not None
    assert found.size == 128
    assert found.low < known < found.high
    assert found.value == pytest.approx(known, rel=0.25)
    assert found.high / found.low < 2.5
    alone = noise_scale(dataclasses.replace(subject, train=None), subject.parameters, key=KEY)
    assert alone is not None
    assert alone.size == 8
    assert known / 3 < alone.value < known * 3


def test_the_noise_scale_is_covered_by_its_interval_and_pure_noise_has_none() -> None:
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        slopes = generator.normal(size=(16, 30)) + 0.5
        mean = slopes.mean(axis=0)
        one = estimate_noise((slopes**2).sum(axis=1), slopes @ mean, float(mean @ mean), 1)
        assert one is not None
        covered += one.low < 4.0 < one.high
    assert 160 <= covered <= 196  # 90 % are asked for
    slopes = generator.normal(size=(16, 30))
    mean = slopes.mean(axis=0)
    lost = estimate_noise((slopes**2).sum(axis=1), slopes @ mean, float(mean @ mean), 1)
    assert lost is not None
    assert lost.high == math.inf
