"""How far back a loss feels: a linear recurrence, whose gradient is known, and networks that keep or lose the past."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import gradwise as gw
from gradwise.checking.flow import memory_span
from gradwise.checking.flow.memory_span import SpanMeasured, find_span, measure_span
from gradwise.checking.recipe_subject import prepare_recipe
from gradwise.checking.rehearsal import rehearse
from gradwise.checking.subject import Subject
from gradwise.specs.paths import replace

KEY = jr.key(0)
STEPS, LENGTHS = 30, np.array([30, 30, 12, 5])


def _subject(factor: float) -> Subject:
    """h <- factor h + x over each sequence; the loss is the mean of the last states, whose gradient is factor ^ d."""
    inputs = np.random.default_rng(0).normal(size=(len(LENGTHS), STEPS, 1)).astype(np.float32)
    inputs[np.arange(STEPS) >= LENGTHS[:, None]] = np.nan

    def loss(model: dict[str, Any], inputs: Any, targets: Any) -> Any:
        def last(sequence: Any) -> Any:
            def step(state: Any, x: Any) -> Any:
                return jnp.where(jnp.isnan(x), state, model["factor"] * state + jnp.where(jnp.isnan(x), 0.0, x)), None

            return jax.lax.scan(step, jnp.zeros(()), sequence[:, 0])[0]

        return jnp.mean(jax.vmap(last)(inputs)) + 0.0 * jnp.sum(targets)

    batch = (jnp.asarray(inputs), jnp.zeros(len(LENGTHS)))
    return Subject.of(loss, {"factor": jnp.asarray(factor)}, batch, optimiser=optax.sgd(0.0))


def test_what_is_felt_is_the_power_of_the_factor() -> None:
    subject = _subject(0.8)
    measured = measure_span(subject, rehearse(subject, key=KEY), key=KEY)
    assert measured is not None
    np.testing.assert_allclose(measured.felt[0] * len(LENGTHS), 0.8 ** np.arange(STEPS), rtol=1e-4)
    np.testing.assert_allclose(measured.felt[1], measured.felt[0], rtol=1e-4)  # a rate of 0
    np.testing.assert_allclose(measured.examples, (LENGTHS[:, None] > np.arange(STEPS)).mean(axis=0))
    assert find_span(measured) == ()


def test_most_steps_out_of_reach_are_reported_with_the_reach() -> None:
    subject = _subject(0.3)
    measured = measure_span(subject, rehearse(subject, key=KEY), key=KEY)
    assert measured is not None
    reach = int(np.floor(np.log(1e-4) / np.log(0.3)))
    assert measured.reach == reach == 7
    felt = np.minimum(LENGTHS, reach + 1).sum() / LENGTHS.sum()
    np.testing.assert_allclose(measured.lost, 1.0 - felt)
    (told,) = find_span(measured)
    assert (told.code, told.level) == ("GW607", "warning")
    assert "the last 8 steps" in told.what


def test_both_times_and_finite_numbers_are_needed() -> None:
    short = 0.01 ** np.arange(9.0)
    whole = np.ones(9)
    for felt in (np.stack([short, whole]), np.stack([whole, short]), np.stack([short, short * np.nan])):
        assert find_span(SpanMeasured(felt, np.ones(9))) == ()
    assert len(find_span(SpanMeasured(np.stack([short, short]), np.ones(9)))) == 1
    assert find_span(None) == ()


@pytest.mark.slow
def test_the_last_state_alone_forgets_and_the_default_does_not() -> None:
    draw = np.random.default_rng(0)
    waves = gw.Sequences.from_list([draw.normal(size=(draw.integers(150, 200), 2)) for _ in range(60)])
    dataset = gw.Dataset(waves, draw.integers(0, 2, 60), gw.Classes(np.arange(2)))
    codes = []
    for pooling in (gw.LastState(), gw.AttentionPooling()):
        model = gw.Recurrent(units=(8,), pooling=pooling)
        recipe = replace(gw.defaults.sequences("classes"), "model", model)
        subject = prepare_recipe(recipe, dataset, key=KEY).subject
        codes.append([one.code for one in find_span(measure_span(subject, rehearse(subject, key=KEY), key=KEY))])
    assert codes == [["GW607"], []]


@pytest.mark.slow
def test_a_check_of_sequences_measures_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_span, "LOST", 2.0)  # no step is felt so much
    draw = np.random.default_rng(0)
    waves = [draw.normal(size=(steps, 1)) for steps in draw.integers(9, 12, 30)]
    found = gw.check(waves, draw.integers(0, 2, 30), set={"model.units": (4,)}, only=["flow"])
    assert "GW607" in {one.code for one in found.findings}
