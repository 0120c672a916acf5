"""Differences against closed forms, and the verdict on made-up numbers: right, wrong, a kink, noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise.checking.gradient.finite_differences import RIGHT, UNKNOWN, WRONG, Differences, curve, judge_differences
from gradwise.checking.subject import Subject

LADDER = np.asarray([1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7])
INPUTS = np.ones((4, 1), np.float32)


def judged(function, analytic, unit=1.1e-16, tolerance=1e-3):
    plus, minus = function(LADDER)[None], function(-LADDER)[None]
    start = float(function(np.zeros(1))[0])
    found = judge_differences(np.asarray([analytic]), start, LADDER[None], plus, minus, unit, 0.0, tolerance)
    return [float(table[0]) for table in found]


def test_a_smooth_slope_is_told_from_a_wrong_one():
    numeric, error, state = judged(lambda e: np.exp(3 * e), 3.0)
    assert (numeric, state) == (pytest.approx(3.0, rel=1e-6), RIGHT)
    assert error < 1e-6
    assert judged(lambda e: np.exp(3 * e), -3.0)[1:] == [pytest.approx(1.0), WRONG]
    assert judged(lambda e: np.exp(3 * e), 3.03)[2] == WRONG


def test_a_kink_is_no_error():
    for between in (-1.0, 0.0, 0.3, 1.0):  # any slope between the one-sided ones is a subgradient
        assert judged(np.abs, between)[2] == RIGHT
    assert judged(np.abs, 5.0)[2] != RIGHT
    near = judged(lambda e: np.maximum(0.0, e + 3e-5), 1.0)  # only the large epsilons step over it
    assert near[0] == pytest.approx(1.0)
    assert near[2] == RIGHT


def test_rounding_is_no_error():
    coarse = lambda e: np.asarray(np.exp(3 * np.asarray(e)), np.float16).astype(float)  # noqa: E731
    assert judged(coarse, 3.4, unit=5e-4)[2] != WRONG
    jumps = lambda e: np.where(np.asarray(e) > 1e-8, 1.0, 0.0)  # noqa: E731
    assert judged(jumps, 1.0)[2] == UNKNOWN


@pytest.fixture(scope="module")
def differences():
    def loss(model, batch):
        return jnp.sum(jnp.exp(model["w"]) * jax.lax.stop_gradient(model["w"])) * jnp.mean(batch)

    return Differences.of(Subject.of(loss, {"w": jnp.asarray([0.5, -1.0, 2.0])}, INPUTS), key=jax.random.key(0))


def test_values_are_those_of_the_loss_with_one_entry_moved(differences):
    w = np.asarray([0.5, -1.0, 2.0])
    moved = [w + 0.25 * np.eye(3)[1], w - 1e-7 * np.eye(3)[2]]
    found = differences.values(np.asarray([1, 2]), np.asarray([0.25, -1e-7]))
    np.testing.assert_allclose(found, [np.sum(np.exp(v) * v) for v in moved], rtol=1e-14)
    plus, minus, steps = differences.both(np.asarray([2]), np.asarray([1e-4]))
    assert steps[0, 0] == pytest.approx(2e-4)  # in proportion to the entry
    assert (plus - minus)[0, 0] / (2 * steps[0, 0]) == pytest.approx(3 * np.exp(2), rel=1e-7)


def test_a_stop_is_put_to_the_test_by_taking_it_out(differences):
    w = np.asarray([0.5, -1.0, 2.0])
    np.testing.assert_allclose(differences.analytic, np.exp(w) * w, rtol=1e-14)
    np.testing.assert_allclose(differences.without_stops(), np.exp(w) * (w + 1), rtol=1e-14)


def test_the_curve_has_the_slopes_of_the_two_formulas():
    subject = Subject.of(lambda model, batch: jnp.sum(jnp.exp(model)) * jnp.mean(batch), jnp.zeros(2), INPUTS)
    epsilons, forward, central = curve(Differences.of(subject, key=jax.random.key(0)), np.arange(2))
    # exp at 0: (e^h - 1)/h = 1 + h/2 + ..., and the central one 1 + h^2/6; the size is the sum of both, about 2.
    np.testing.assert_allclose(forward[1:5], epsilons[1:5] / 4, rtol=0.02)
    np.testing.assert_allclose(central[:3], epsilons[:3] ** 2 / 12, rtol=0.02)
    assert central[-1] > 100 * central.min()
    assert forward[-1] > forward.min()


def test_a_loss_of_32_bits_is_known_as_coarse_and_one_that_insists_on_them_is_taken_as_it_is():
    def cast(model, batch):
        return jnp.mean(jnp.tanh(batch * model).astype(jnp.float32) ** 2)

    def carried(model, batch):
        step = lambda c, x: (jnp.tanh(x * model + c).astype(jnp.float32), None)  # noqa: E731
        return jnp.sum(jax.lax.scan(step, jnp.zeros((1,), jnp.float32), batch)[0])

    model = jnp.asarray([0.3])
    for loss in (cast, carried):
        found = Differences.of(Subject.of(loss, model, INPUTS), key=jax.random.key(0))
        assert found.coarse == "float32"
        assert found.epsilon == 1e-2
        assert found.tolerance == 0.05
    fine = Differences.of(Subject.of(lambda m, b: jnp.mean(jnp.tanh(b * m)), model, INPUTS), key=jax.random.key(0))
    assert fine.coarse == ""
    assert fine.epsilon == 1e-4
    assert fine.wide
