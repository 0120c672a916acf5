"""The one-line gradient check of a user's own test."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradwise.testing
from gradwise.testing import assert_gradients

HERE = Path(__file__).name

INPUTS = np.linspace(-1, 1, 12).reshape(4, 3).astype(np.float32)
MODEL = {"hidden": jnp.linspace(-1, 1, 6).reshape(3, 2), "offset": jnp.asarray([0.1, 0.2])}


@jax.custom_jvp
def bend(x):
    return jnp.tanh(x)


@bend.defjvp
def _bend_jvp(primals, tangents):
    return jnp.tanh(primals[0]), -(1 - jnp.tanh(primals[0]) ** 2) * tangents[0]


def test_a_wrong_derivative_fails_with_its_place_as_text():
    def loss(model, batch):
        return jnp.mean(jax.lax.stop_gradient(model["offset"]) * bend(batch @ model["hidden"]))

    with pytest.raises(AssertionError) as raised:
        assert_gradients(loss, MODEL, INPUTS)
    lines = str(raised.value).splitlines()
    assert lines[0].startswith("GW101 error [hidden; ")
    assert "`bend` has the wrong sign" in lines[0]
    assert HERE in lines[0]
    assert any(line.startswith("GW103 error [offset; ") for line in lines)  # signs first


def test_a_sound_loss_passes_and_what_is_declared_frozen_is_left_out():
    def loss(model, batch):
        return jnp.mean(jax.lax.stop_gradient(model["offset"]) * jnp.tanh(batch @ model["hidden"]))

    assert_gradients(loss, MODEL, INPUTS, key=jax.random.key(3), frozen="offset")
    with pytest.raises(AssertionError, match="GW103"):
        assert_gradients(loss, MODEL, INPUTS)
    with pytest.raises(AttributeError, match="assert_nothing"):
        gradwise.testing.assert_nothing  # noqa: B018
