"""What the numbers of the rates mean: numbers in, findings out, on both sides of each threshold."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gradwise.checking.learning.learning_rate import NoiseScale, RatesMeasured, measure_rates
from gradwise.checking.learning.learning_rate_findings import find_rates
from gradwise.checking.rehearsal import rehearse
from gradwise.checking.subject import Subject
from gradwise.records.finding import Finding

KEY = jax.random.key(5)


def _codes(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.code for finding in findings]


def _measured(**changed: Any) -> RatesMeasured:
    factors = np.array([0.0, *(3.0**k for k in range(-7, 8))])
    losses = np.tile(2.0 - np.linspace(0, 1, 16)[:, None], (1, 4))
    ratios = np.array([1e-3, math.nan, 2e-3])
    plain = RatesMeasured(
        factors,
        losses,
        (2.0, 1.0),
        1.0,
        0.0,
        math.nan,
        ("w", "b", "v"),
        ratios,
        np.zeros(3, bool),
        False,
        None,
        64,
        False,
    )
    return dataclasses.replace(plain, **changed)


def test_updates_out_of_proportion_name_the_worst_parameter_once() -> None:
    ratios = np.array([0.2, math.nan, 0.9])
    (finding,) = find_rates(_measured(ratios=ratios))
    assert (finding.code, finding.level, finding.where) == ("GW503", "warning", "v")
    assert "1 more" in finding.what
    assert find_rates(_measured(ratios=ratios, stand_in=True)) == ()
    small = np.array([1e-7, math.nan, 1e-3])
    assert _codes(find_rates(_measured(ratios=small))) == ["GW503"]
    assert find_rates(_measured(ratios=small, sparse=np.array([True, False, False]))) == ()
    assert find_rates(_measured(ratios=small, warming=True)) == ()
    assert find_rates(_measured(ratios=np.array([0.0, math.nan, 1e-3]))) == ()  # the schedule has ended
    assert "by about 1000," in find_rates(_measured(ratios=np.array([1e-20, math.nan, 1e-3])))[0].next
    assert find_rates(_measured()) == ()


def test_a_batch_far_from_the_noise_scale_is_noted() -> None:
    (note,) = find_rates(_measured(noise=NoiseScale(4096.0, 2000.0, 8000.0, 64, 16)))
    assert (note.code, note.level) == ("GW504", "note")
    assert "4096" in note.next
    assert _codes(find_rates(_measured(noise=NoiseScale(2.0, 1.0, 4.0, 64, 16)))) == ["GW504"]
    assert find_rates(_measured(noise=NoiseScale(400.0, 200.0, 800.0, 64, 16))) == ()
    assert find_rates(_measured(noise=NoiseScale(math.inf, 900.0, math.inf, 64, 16))) == ()


def test_a_loss_that_is_no_number_at_any_factor_says_nothing_of_rates() -> None:
    assert find_rates(_measured(losses=np.full((16, 4), np.nan))) == ()
    seen = _measured().evidence()
    assert seen.limit == 2.0
    assert len(seen.factors) == len(seen.losses) == 16


@pytest.mark.parametrize(
    ("rate", "advice"),
    [(1e-3, None), (2e-5, "multiply the learning rate by about 500"), (0.2, "divide the learning rate by about 200")],
)
def test_the_ratio_of_updates_to_weights_is_the_known_one(rate: float, advice: str | None) -> None:
    """Row F18: the slope of c |W|^2 / 2 is c W, so plain gradient descent changes W by rate x c of its size."""

    def loss(p: dict[str, jax.Array], batch: jax.Array) -> jax.Array:
        return 0.5 * jnp.sum(p["w"] ** 2) + 0.05 * jnp.sum(p["v"] ** 2) + 0.0 * jnp.sum(batch)

    start = {"v": jnp.ones((3, 2)), "w": jax.random.normal(KEY, (4, 3))}
    subject = Subject.of(loss, start, jnp.zeros((16, 1)), optimiser=optax.sgd(rate))
    measured = measure_rates(subject, rehearse(subject, key=KEY), key=KEY, ladder=False)
    assert measured.names == ("v", "w")
    np.testing.assert_allclose(measured.ratios, [0.1 * rate, rate], rtol=1e-3)
    told = [finding for finding in find_rates(measured) if finding.code == "GW503"]
    assert [finding.next.partition(",")[0] for finding in told] == ([advice] if advice else [])


@pytest.mark.parametrize(("size", "codes"), [(1, ["GW504"]), (64, []), (512, ["GW504"])])
def test_advice_on_the_batch_follows_a_known_noise_scale(size: int, codes: list[str]) -> None:
    """Row B4: the slope of mean(w . x) is the mean of x, whose noise scale is tr(cov x) / |mean x|^2, here 36."""
    draw = np.random.default_rng(0).normal(size=(4096, 200))
    inputs = jnp.asarray(3.0 * (draw - draw.mean(0)) / draw.std(0) + 0.5, jnp.float32)

    def loss(p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        return jnp.mean(x @ p["w"])

    subject = Subject.of(loss, {"w": jnp.zeros(200)}, inputs[:size], train=inputs, optimiser=optax.sgd(1e-3))
    measured = measure_rates(subject, rehearse(subject, key=KEY), key=KEY, ladder=False)
    assert measured.noise is not None
    assert measured.noise.low < 36.0 < measured.noise.high
    assert measured.noise.value == pytest.approx(36.0, rel=0.5 if size == 1 else 0.1)
    told = find_rates(measured)
    assert _codes(told) == codes
    assert all(finding.next.startswith("try batches of about 32,") for finding in told if size > 1)
