"""Adam and AdamW (row J1) against the published recursion, and what their decay means."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gradwise.core.parts import AbstractOptimiser
from gradwise.optimisers.adaptive import Adam, AdamW
from gradwise.testing import oracles

RNG = np.random.default_rng(0)
SCALES = np.asarray([1e-3, 1.0, 1e3, 10.0, 0.1])
START = np.asarray([2.0, 1.0, -1.0, 0.5, -3.0])
NOISE = 0.2 * RNG.normal(size=(20, 5))


def gradient(point: np.ndarray, update: int) -> np.ndarray:
    return SCALES * (point + NOISE[update])


def as_tree(values) -> dict:
    values = jnp.asarray(values, jnp.float32)
    return {"layers": ({"weight": values[:2], "bias": values[2:3]},), "output": {"weight": values[3:]}}


def flat(tree: dict):
    return jnp.concatenate([tree["layers"][0]["weight"], tree["layers"][0]["bias"], tree["output"]["weight"]])


@eqx.filter_jit
def points(optimiser: AbstractOptimiser):
    def body(carry, noise):
        here, state = carry
        slope = as_tree(jnp.asarray(SCALES, jnp.float32) * (flat(here) + noise))
        moves, state = optimiser.build().update(slope, state, here, value=jnp.zeros(()))
        here = optax.apply_updates(here, moves)
        return (here, state), (flat(here), optimiser.rate(state))

    start = as_tree(START)
    return jax.lax.scan(body, (start, optimiser.build().init(start)), jnp.asarray(NOISE, jnp.float32))[1]


# The compiled moments are 32-bit numbers, and 1 - 0.999 feels it: the oracle takes the rounded ones.
ROUNDED = {"first": float(np.float32(0.9)), "second": float(np.float32(0.999))}
WEIGHTS = np.asarray([1.0, 1.0, 0.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("optimiser", "expected"),
    [
        (Adam(0.05), oracles.adam(gradient, START, 20, rate=0.05, **ROUNDED)),
        (
            Adam(0.05, first_moment=0.5, second_moment=0.75, epsilon=0.1),
            oracles.adam(gradient, START, 20, rate=0.05, first=0.5, second=0.75, epsilon=0.1),
        ),
        (AdamW(0.05, decay=0.5), oracles.adam(gradient, START, 20, rate=0.05, decay=0.5 * WEIGHTS, **ROUNDED)),
        (
            AdamW(0.05, decay=0.5, where="*.bias"),
            oracles.adam(gradient, START, 20, rate=0.05, decay=0.5 * (1 - WEIGHTS), **ROUNDED),
        ),
        (AdamW(0.05, decay=0.0), oracles.adam(gradient, START, 20, rate=0.05, **ROUNDED)),
    ],
    ids=["adam", "adam-other-moments", "adamw", "adamw-biases", "adamw-off"],
)
def test_twenty_updates_equal_the_recursion(optimiser: AbstractOptimiser, expected: np.ndarray) -> None:
    found, rates = points(optimiser)
    np.testing.assert_allclose(found, expected[1:], atol=1e-5)
    np.testing.assert_allclose(rates, 0.05, rtol=1e-6)


def test_the_first_step_is_the_rate_whatever_the_scale() -> None:
    first = np.asarray(points(Adam(0.05))[0])[0] - START
    np.testing.assert_allclose(np.abs(first), 0.05, rtol=1e-3)


def test_adamw_says_which_meaning_its_decay_has() -> None:
    (note,) = AdamW(decay=0.02).findings()
    assert (note.level, note.row) == ("note", "J1")
    assert "decay=0.02" in note.what
    assert "lambda" in note.what
    assert AdamW(decay=0.0).findings() == ()
