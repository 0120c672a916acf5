"""The first loss against chance, and a loss that should go down: sound starts raise nothing, others are told."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.dummy import DummyRegressor
from sklearn.metrics import mean_squared_error

from gradwise.checking.learning.first_loss import StartMeasured, fall_of, find_fall, find_start, measure_start
from gradwise.checking.learning.loss_recognition import Recognised
from gradwise.checking.rehearsal import Rehearsal
from tests.checking.digit_net import BATCH, KEY, mlp, subject


def test_a_sound_start_is_at_chance_and_large_outputs_are_not() -> None:
    sound = measure_start(subject(train=BATCH), key=KEY)
    assert sound.seen.kind == "classes"
    assert sound.seen.constant <= math.log(10) + 1e-9
    assert find_start(sound) == ()
    large = measure_start(subject(parameters={**mlp(), "v": 20 * mlp()["v"]}), key=KEY)
    (finding,) = find_start(large)
    assert (finding.code, finding.level) == ("GW404", "warning")
    assert finding.evidence["criterion"] == pytest.approx(large.loss, rel=1e-3)


def test_numbers_are_held_against_the_best_constant() -> None:
    numbers = load_diabetes()
    inputs, raw = jnp.asarray(numbers.data[:100] * 20, jnp.float32), numbers.target[:100]
    apply = lambda p, x: jnp.tanh(x @ p["w"]) @ p["v"]  # noqa: E731
    parameters = {"w": mlp()["w"][:10], "v": mlp()["v"][:, 0]}
    loss = lambda p, batch: 0.5 * jnp.mean((apply(p, batch[0]) - batch[1]) ** 2)  # noqa: E731
    unscaled = measure_start(subject(apply, parameters, (inputs, jnp.asarray(raw, jnp.float32)), loss), key=KEY)
    constant = DummyRegressor().fit(inputs, raw).predict(inputs)
    assert unscaled.seen.constant == pytest.approx(mean_squared_error(raw, constant), rel=1e-4)
    assert unscaled.seen.scale == pytest.approx(0.5, rel=1e-3)
    (finding,) = find_start(unscaled)
    assert finding.code == "GW404"
    assert "targets.std" in finding.next
    scaled = jnp.asarray((raw - raw.mean()) / raw.std(), jnp.float32)
    assert find_start(measure_start(subject(apply, parameters, (inputs, scaled), loss), key=KEY)) == ()


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
