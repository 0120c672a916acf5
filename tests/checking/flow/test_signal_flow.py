"""The flow of real networks: known numbers by layer, planted faults found there, sound twins that raise nothing."""

import json

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.checking.flow.signal_flow import copies, measure_flow
from gradwise.checking.flow.signal_flow_findings import find_flow
from gradwise.checking.rehearsal import rehearse
from gradwise.checking.subject import Subject
from gradwise.records.plain_values import to_values

KEY = jr.key(0)
WIDTH = 12
X = jr.normal(KEY, (48, WIDTH))
Y = jnp.arange(48) % 3


def subject(depth: int, scale: float, *, activation=jnp.tanh, bias: float = 0.0, last: float = 1.0, orthogonal=False):
    """Square layers whose weights keep the variance at scale 1."""
    draw = jax.nn.initializers.orthogonal() if orthogonal else jax.nn.initializers.normal(WIDTH**-0.5)
    keys = jr.split(KEY, depth + 1)
    net = [{"w": scale * draw(key, (WIDTH, WIDTH)), "b": jnp.full(WIDTH, bias)} for key in keys[:-1]]
    net.append({"w": last * jr.normal(keys[-1], (WIDTH, 3)), "b": jnp.zeros(3)})

    def loss(net, x, y):
        for layer in net[:-1]:
            x = activation(x @ layer["w"] + layer["b"])
        outputs = x @ net[-1]["w"] + net[-1]["b"]
        return -jnp.mean(jax.nn.log_softmax(outputs)[jnp.arange(len(y)), y])

    return Subject.of(loss, net, (X, Y))


def checked(one: Subject, *, rehearsed: bool = False):
    measured = measure_flow(one, rehearse(one, key=KEY) if rehearsed else None, key=KEY)
    json.dumps(to_values(measured.evidence()), allow_nan=False)
    return measured, find_flow(measured)


def told(findings):
    return [(finding.code, finding.level, finding.where) for finding in findings]


@pytest.mark.slow
def test_ten_layers_of_tanh_vanish_pass_or_saturate_by_their_scale() -> None:
    _, small = checked(subject(10, 0.1))
    assert told(small) == [("GW604", "warning", "0")]
    assert small[0].evidence["factor"] > 1e7  # a tenth of it in each of ten layers
    assert checked(subject(10, 1.0))[1] == ()
    measured, large = checked(subject(4, 8.0))
    assert [finding.code for finding in large] == ["GW601"]
    sums = np.asarray(X @ subject(4, 8.0).parameters[0]["w"])
    assert measured.layers[0].saturated[0] == pytest.approx(np.mean(1 - np.tanh(sums) ** 2 < 0.01), abs=1e-6)


def test_the_singular_values_of_orthogonal_layers_are_their_gain() -> None:
    measured, findings = checked(subject(3, 4.0, activation=lambda a: a, orthogonal=True))
    assert [(one.source, one.target) for one in measured.stretches] == [("0", "1"), ("1", "2"), ("2", "3")]
    for one in measured.stretches[:2]:
        np.testing.assert_allclose(one.singular, 4.0, rtol=1e-5)
        assert (one.forwards, one.backwards) == pytest.approx((4.0, 4.0), rel=1e-5)
    assert [(finding.code, finding.level) for finding in findings] == [("GW606", "note")]
    assert findings[0].evidence["backwards"] == pytest.approx(4.0, rel=1e-5)
    assert checked(subject(3, 1.0, activation=lambda a: a, orthogonal=True))[1] == ()


def test_rectifiers_that_start_below_zero_are_dead_and_stay_so() -> None:
    measured, findings = checked(subject(2, 1.0, activation=jax.nn.relu, bias=-10.0), rehearsed=True)
    assert told(findings) == [("GW602", "error", "0")]
    assert measured.layers[0].dead == (1.0, 1.0)
    assert not checked(subject(2, 1.4, activation=jax.nn.relu))[1]


def test_zero_weights_everywhere_make_copies_and_a_zero_last_layer_does_not() -> None:
    _, findings = checked(subject(2, 0.0, last=0.0), rehearsed=True)
    assert told(findings) == [("GW603", "error", "0")]
    assert not checked(subject(2, 1.0, last=0.0), rehearsed=True)[1]


def test_copies_are_counted_by_value_and_gradient() -> None:
    values = np.random.default_rng(0).normal(size=(20, 6))
    gradients = np.random.default_rng(1).normal(size=(20, 6))
    assert copies(values, gradients) == 0.0
    values[:, 4] = values[:, 1]
    assert copies(values, gradients) == 0.0  # their gradients differ: an update parts them
    gradients[:, 4] = gradients[:, 1]
    assert copies(values, gradients) == pytest.approx(2 / 6)
    assert copies(np.zeros((20, 6)), np.zeros((20, 6))) == 1.0
    assert copies(np.full((20, 6), np.nan), gradients) == 0.0
