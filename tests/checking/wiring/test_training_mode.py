"""Evaluation that is random or computes something else, and dropout that never drops, each beside its sound twin."""

import dataclasses
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.checking.subject import Subject
from gradwise.checking.wiring.training_mode import ModesMeasured, find_modes, linked, measure_modes
from tests.marks import parametrize_one_quick

HERE = Path(__file__).name

KEY = jr.key(0)
ROWS = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
TARGETS = (ROWS[:, :2] * [1.0, -1.0]).astype("float32")


class Net(eqx.Module):
    first: eqx.nn.Linear
    square: eqx.nn.Linear
    dropout: eqx.nn.Dropout
    last: eqx.nn.Linear

    def __init__(self, key):
        one, two, three = jr.split(key, 3)
        self.first = eqx.nn.Linear(4, 6, key=one)
        self.square = eqx.nn.Linear(6, 6, key=two)
        self.dropout = eqx.nn.Dropout(0.4)
        self.last = eqx.nn.Linear(6, 2, key=three)

    def __call__(self, x, key=None):
        hidden = jnp.tanh(self.square(jnp.tanh(self.first(x))))
        return self.last(self.dropout(hidden, key=key))


NET = Net(KEY)


def loss(model, batch, key):
    outputs = jax.vmap(model)(batch[0], jr.split(key, len(batch[0])))
    return jnp.mean((outputs - batch[1]) ** 2)


def sound(model, inputs):
    return jax.vmap(eqx.nn.inference_mode(model))(inputs)


def left_on(model, inputs):
    return jax.vmap(lambda x: model(x, key=jr.key(3)))(inputs)


def transposed(model, inputs):
    model = eqx.tree_at(lambda m: m.square.weight, model, model.square.weight.T)
    return sound(model, inputs)


def rescaled(model, inputs):
    return 0.6 * sound(model, inputs)


def forgetting(model, inputs):
    model = eqx.nn.inference_mode(model)
    return jax.vmap(lambda x: model.last(jnp.tanh(model.first(x))))(inputs)


def by_python(model, inputs):
    return sound(model, inputs) + np.random.default_rng().normal()


def probabilities(model, inputs):
    return jax.nn.softmax(sound(model, inputs) / 1.5, axis=-1)


def in_units(model, inputs):
    return sound(model, inputs) * jnp.array([3.0, 5.0]) + jnp.array([1.0, -2.0])


def classes(model, inputs):
    return jnp.argmax(sound(model, inputs), axis=-1)


@parametrize_one_quick(
    ("evaluate", "expected", "said"),
    [
        (left_on, [("GW306", "error")], "dropout"),
        (by_python, [("GW306", "error")], "two evaluations"),
        (transposed, [("GW307", "error")], "differ from noise-free training outputs"),
        (forgetting, [("GW307", "error")], "differ from noise-free training outputs"),
        (rescaled, [("GW307", "error")], "a constant factor of 0.6, that of dropout"),
        (sound, [], ""),
        (probabilities, [], ""),
        (in_units, [], ""),
        (classes, [], ""),
    ],
)
def test_the_users_own_evaluation(evaluate, expected, said):
    measured = measure_modes(Subject.of(loss, NET, (ROWS, TARGETS), evaluate=evaluate), key=KEY)
    findings = find_modes(measured)
    assert [(f.code, f.level) for f in findings] == expected
    assert all(said in f.what and f.where.startswith(f"{HERE}:") for f in findings)
    if evaluate is transposed:
        other = eqx.tree_at(lambda m: m.square.weight, NET, NET.square.weight.T)
        direct = [np.asarray(sound(model, ROWS)) for model in (NET, other)]
        # The oracle on all rows bounds what a sample of them may show.
        assert 0 < measured.reference <= 3 * np.abs(direct[1] - direct[0]).max() / np.abs(direct[0]).max()


def test_dropout_that_no_key_reaches_and_dropout_switched_off():
    def keyless(model, batch, key):
        return jnp.mean((sound(model, batch[0]) - batch[1]) ** 2)

    (finding,) = find_modes(measure_modes(Subject.of(keyless, NET, (ROWS, TARGETS)), key=KEY))
    assert (finding.code, finding.level, finding.where) == ("GW308", "warning", "dropout")
    off = find_modes(measure_modes(Subject.of(loss, eqx.nn.inference_mode(NET), (ROWS, TARGETS)), key=KEY))
    assert [f.code for f in off] == ["GW308"]
    assert "the model is in evaluation mode" in off[0].what
    measured = measure_modes(Subject.of(loss, NET, (ROWS, TARGETS)), key=KEY)
    assert find_modes(measured) == ()
    assert measured.noise > 1e-3


def test_noise_written_by_hand_and_random_features():
    model = {"w": jr.normal(KEY, (4, 8)), "v": jr.normal(jr.key(1), (8, 2))}

    def noisy(model, inputs, key):
        hidden = jnp.tanh(inputs @ model["w"])
        return (hidden * jr.bernoulli(key, 0.7, hidden.shape) / 0.7) @ model["v"]

    def quiet(model, inputs):
        return jnp.tanh(inputs @ model["w"]) @ model["v"]

    def features(model, inputs, key=None):
        """Random features, the same in both modes: sound."""
        return jnp.cos(inputs @ jr.normal(jr.key(5), (4, 8))) @ model["v"]

    def check(apply, evaluate):
        def value(model, batch, key):
            return jnp.mean((apply(model, batch[0], key) - batch[1]) ** 2)

        subject = Subject.of(value, model, (ROWS, TARGETS), apply=apply, evaluate=evaluate)
        return [(f.code, f.level) for f in find_modes(measure_modes(subject, key=KEY))]

    assert check(noisy, lambda model, inputs: noisy(model, inputs, jr.key(0))) == [("GW306", "error")]
    assert check(noisy, quiet) == []
    assert check(features, features) == []


def test_flax_models_are_compared_with_their_own_evaluation_mode():
    nnx = pytest.importorskip("flax.nnx")

    class Flax(nnx.Module):
        def __init__(self, rngs):
            self.first, self.last = nnx.Linear(4, 6, rngs=rngs), nnx.Linear(6, 2, rngs=rngs)
            self.dropout = nnx.Dropout(0.4, rngs=rngs)

        def __call__(self, x):
            return self.last(self.dropout(jnp.tanh(self.first(x))))

    def value(model, batch, key):
        return jnp.mean((model(batch[0]) - batch[1]) ** 2)

    def right(model, inputs):
        model.eval()
        return model(inputs)

    def wrong(model, inputs):
        return model(inputs)

    def codes(evaluate):
        subject = Subject.of(value, Flax(nnx.Rngs(0)), (ROWS, TARGETS), evaluate=evaluate)
        return [f.code for f in find_modes(measure_modes(subject, key=KEY))]

    assert codes(right) == []
    assert codes(wrong) == ["GW306"]


def test_links_are_told_from_other_outputs():
    draws = np.random.default_rng(1)
    outputs, other = draws.normal(size=(2, 7, 3))
    shares = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    assert linked(shares, outputs)
    assert linked(np.log(shares), outputs)
    assert linked(1 / (1 + np.exp(-outputs)), outputs)
    assert linked(1 - 2 * outputs, outputs)
    assert not linked(other, outputs)
    assert not linked(outputs[:, ::-1], outputs)
    assert not linked(np.zeros((7, 3)), outputs)


def test_numbers_alone_decide():
    assert find_modes(ModesMeasured()) == ()
    fixed = ModesMeasured(draws=0.5)  # random features: no noise in training, no dropout
    assert find_modes(fixed) == ()
    assert [f.code for f in find_modes(dataclasses.replace(fixed, noisy=0.1))] == ["GW306"]
    assert find_modes(dataclasses.replace(fixed, noisy=0.1, switched=0.0)) == ()
    other = ModesMeasured(reference=0.2)
    assert [(f.code, f.level) for f in find_modes(other)] == [("GW307", "error")]
    assert find_modes(dataclasses.replace(other, reference_leak=0.1)) == ()
    assert [f.level for f in find_modes(dataclasses.replace(other, scale=2.0))] == ["warning"]
