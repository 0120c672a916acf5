"""The first loss against chance, and a loss that should go down: sound starts raise nothing, others are told."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.datasets import load_diabetes, load_digits
from sklearn.dummy import DummyRegressor
from sklearn.metrics import mean_squared_error

from gradwise.checking.chance import Recognised
from gradwise.checking.rehearsal import Rehearsal
from gradwise.checking.start import StartMeasured, fall_of, find_fall, find_start, measure_start
from gradwise.checking.subject import Subject

KEY = jax.random.key(3)
INPUTS, TARGETS = load_digits(return_X_y=True)
BATCH = (jnp.asarray(INPUTS[:64] / 8 - 1, jnp.float32), jnp.asarray(TARGETS[:64]))


def _mlp(key: int = 0) -> dict[str, jax.Array]:
    first, second = jax.random.split(jax.random.key(key))
    return {
        "w": jax.random.normal(first, (64, 16)) / 8,
        "b": jnp.zeros(16),
        "v": jax.random.normal(second, (16, 10)) / 4,
        "c": jnp.zeros(10),
    }


def _logits(p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ p["w"] + p["b"]) @ p["v"] + p["c"]


def _cross_entropy(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(outputs, targets).mean()


def _subject(
    apply: Any = _logits, parameters: Any = None, batch: Any = BATCH, loss: Any = None, **more: Any
) -> Subject:
    given = loss or (lambda p, batch: _cross_entropy(apply(p, batch[0]), batch[1]))
    return Subject.of(given, _mlp() if parameters is None else parameters, batch, apply=apply, **more)


def test_a_sound_start_is_at_chance_and_large_outputs_are_not() -> None:
    sound = measure_start(_subject(train=BATCH), key=KEY)
    assert sound.seen.kind == "classes"
    assert sound.seen.constant <= math.log(10) + 1e-9
    assert find_start(sound) == ()
    large = measure_start(_subject(parameters={**_mlp(), "v": 20 * _mlp()["v"]}), key=KEY)
    (finding,) = find_start(large)
    assert (finding.code, finding.level) == ("GW404", "warning")
    assert finding.evidence["criterion"] == pytest.approx(large.loss, rel=1e-3)


def test_numbers_are_held_against_the_best_constant() -> None:
    numbers = load_diabetes()
    inputs, raw = jnp.asarray(numbers.data[:100] * 20, jnp.float32), numbers.target[:100]
    apply = lambda p, x: jnp.tanh(x @ p["w"]) @ p["v"]  # noqa: E731
    parameters = {"w": _mlp()["w"][:10], "v": _mlp()["v"][:, 0]}
    loss = lambda p, batch: 0.5 * jnp.mean((apply(p, batch[0]) - batch[1]) ** 2)  # noqa: E731
    unscaled = measure_start(_subject(apply, parameters, (inputs, jnp.asarray(raw, jnp.float32)), loss), key=KEY)
    constant = DummyRegressor().fit(inputs, raw).predict(inputs)
    assert unscaled.seen.constant == pytest.approx(mean_squared_error(raw, constant), rel=1e-4)
    assert unscaled.seen.scale == pytest.approx(0.5, rel=1e-3)
    (finding,) = find_start(unscaled)
    assert finding.code == "GW404"
    assert "targets.std" in finding.next
    scaled = jnp.asarray((raw - raw.mean()) / raw.std(), jnp.float32)
    assert find_start(measure_start(_subject(apply, parameters, (inputs, scaled), loss), key=KEY)) == ()


def test_unequal_classes_and_unknown_losses_are_left_alone() -> None:
    rare = Recognised("labels", math.log(2), 0.05, math.log(2), 1.0, 0.0, 0.0)
    assert find_start(StartMeasured(math.log(2), rare)) == ()
    assert find_start(StartMeasured(1e6, Recognised())) == ()


def _rehearsal(losses: np.ndarray, gradient: float = 1.0) -> Rehearsal:
    ones = np.full((len(losses), 1), gradient)
    return Rehearsal(("w",), losses, ones, ones, ones, np.ones(1), {}, {}, False)


def test_a_loss_that_stays_is_told_and_noise_is_given_its_due() -> None:
    noise = np.random.default_rng(0).normal(size=100)
    assert fall_of(np.linspace(2.0, 1.0, 100))[0] == pytest.approx(80 / 99)
    (finding,) = find_fall(_rehearsal(2.3 + 0.01 * noise), place="here")
    assert (finding.code, finding.level, finding.where) == ("GW405", "warning", "here")
    assert find_fall(_rehearsal(2.3 + 0.01 * np.arange(100))) != ()
    assert find_fall(_rehearsal(2.3 + 0.5 * noise)) == ()  # too noisy to say
    assert find_fall(_rehearsal(2.3 - 0.01 * np.arange(100) + 0.01 * noise)) == ()
    assert find_fall(_rehearsal(2.3 - 0.0003 * np.arange(100))) == ()  # slowly but surely
    assert find_fall(_rehearsal(2.3 + 0.01 * noise, gradient=0.0)) == ()
    assert find_fall(_rehearsal(np.full(100, np.nan))) == ()
