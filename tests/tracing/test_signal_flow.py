"""The statistics of the flow: equal to NumPy's by hand, alone, in a scan and in a population."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.tracing.layers import trace_layers
from gradwise.tracing.signal_flow import BINS, statistics, summary

KEY = jr.key(0)
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 5)).astype(np.float32)
Y = RANDOM.normal(size=(40, 2)).astype(np.float32)
BIAS = np.asarray([0.0, -50.0, 0.5, -50.0], np.float32)  # the second and the fourth rectifier are dead
NET = {
    "a": {"w": RANDOM.normal(size=(5, 6)).astype(np.float32) * 3, "b": RANDOM.normal(size=6).astype(np.float32)},
    "b": {"w": RANDOM.normal(size=(6, 4)).astype(np.float32), "b": BIAS},
    "c": {"w": RANDOM.normal(size=(4, 2)).astype(np.float32), "b": np.zeros(2, np.float32)},
}


def loss(net, batch, key):
    hidden = jnp.tanh(batch[0] @ net["a"]["w"] + net["a"]["b"])
    hidden = jax.nn.relu(hidden @ net["b"]["w"] + net["b"]["b"])
    return jnp.mean((hidden @ net["c"]["w"] + net["c"]["b"] - batch[1]) ** 2)


def seen(net):
    program, layers = trace_layers(loss, NET, (X, Y), KEY)
    return statistics(program, layers, net, (X, Y), KEY)


@pytest.fixture(scope="module")
def flow():
    return jax.jit(seen)(NET)


def by_hand() -> dict[str, list[np.ndarray]]:
    """Forwards and backwards in NumPy, 64 bits."""
    a = X.astype(float) @ NET["a"]["w"] + NET["a"]["b"]
    h = np.tanh(a)
    b = h @ NET["b"]["w"] + NET["b"]["b"]
    r = np.maximum(b, 0.0)
    o = r @ NET["c"]["w"] + NET["c"]["b"]
    d_o = 2.0 * (o - Y) / Y.size
    d_b = (d_o @ NET["c"]["w"].T) * (b > 0)
    d_a = (d_b @ NET["b"]["w"].T) * (1.0 - h**2)
    moves = [d_a.sum(0), X.T @ d_a, d_b.sum(0), h.T @ d_b, d_o.sum(0), r.T @ d_o]
    return {"inputs": [a, b, o], "outputs": [h, r, o], "gradients": [d_a, d_b, d_o], "parameter_gradients": moves}


def test_every_statistic_is_that_by_hand(flow) -> None:
    assert flow.layers == ("a", "b", "c")
    assert flow.names == ("a.b", "a.w", "b.b", "b.w", "c.b", "c.w")
    expected = {**by_hand(), "parameters": jax.tree.leaves(NET)}
    for kind, groups in expected.items():
        got = getattr(flow, kind)
        for word, of in (("mean", np.mean), ("deviation", np.std), ("norm", np.linalg.norm)):
            np.testing.assert_allclose(getattr(got, word), [of(one) for one in groups], rtol=2e-4, atol=1e-6)
        np.testing.assert_allclose(got.rms, [np.sqrt(np.mean(np.square(one))) for one in groups], rtol=2e-4)


def test_flat_places_are_counted(flow) -> None:
    a = by_hand()["inputs"][0]
    assert 0.1 < np.mean(1 - np.tanh(a) ** 2 < 0.01) < 0.9  # both kinds of entries occur
    np.testing.assert_allclose(flow.saturated, [np.mean(1 - np.tanh(a) ** 2 < 0.01), np.nan, np.nan], rtol=1e-6)
    np.testing.assert_allclose(flow.dead, [np.mean((1 - np.tanh(a) ** 2 < 0.01).all(0)), 0.5, 0.0])


def test_histograms_are_numpys(flow) -> None:
    values = by_hand()["inputs"][0].astype(np.float32).ravel()
    low, high = float(flow.inputs.low[0]), float(flow.inputs.high[0])
    assert (low, high) == pytest.approx((values.min(), values.max()), rel=1e-5)
    counts, _ = np.histogram(values, bins=BINS, range=(values.min(), values.max()))
    np.testing.assert_allclose(np.asarray(flow.inputs.histogram[0]) * values.size, counts, atol=1.01)  # on a border
    np.testing.assert_allclose(np.sum(flow.gradients.histogram, axis=1), 1.0, rtol=1e-5)


@pytest.mark.slow
def test_outliers_do_not_spoil_a_histogram() -> None:
    values = np.append(np.linspace(-1.0, 1.0, 3000), 1e6).astype(np.float32)
    one = jax.tree.map(np.asarray, summary([values]))
    assert one.high[0] == pytest.approx(values.mean() + 4 * values.std(), rel=1e-3)
    other = summary([values], np)  # NumPy's own
    for name in ("mean", "deviation", "rms", "norm", "low", "high", "histogram"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-4, atol=1e-6)


def test_in_a_population_each_member_has_its_own(flow) -> None:
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, 0.5 * leaf]), NET)
    both = jax.jit(jax.vmap(seen))(several)
    np.testing.assert_allclose(both.inputs.rms[0], flow.inputs.rms, rtol=1e-5)
    np.testing.assert_allclose(both.inputs.rms[1, 0], 0.5 * flow.inputs.rms[0], rtol=1e-5)
    assert both.gradients.histogram.shape == (2, 3, BINS)


def test_a_slope_of_the_users_own_counts() -> None:
    """A step that passes gradients straight through is not dead; a plain one is."""

    @jax.custom_vjp
    def step(a):
        return jnp.sign(a)

    step.defvjp(lambda a: (jnp.sign(a), None), lambda _, g: (g,))
    for function, dead in ((step, 0.0), (jnp.sign, 1.0)):

        def through(net, batch, key, function=function):
            return jnp.mean((function(batch[0] @ net["a"]["w"]) @ net["b"]["w"]) ** 2)

        program, layers = trace_layers(through, NET, (X, Y), KEY)
        found = jax.jit(lambda net, p=program, n=layers: statistics(p, n, net, (X, Y), KEY))(NET)
        assert found.layers == ("a", "b")
        assert found.dead[0] == dead
