"""Padding, weights and buffers with planted mistakes, each beside its sound twin."""

import dataclasses
import itertools
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.checking.subject import Subject
from gradwise.checking.wiring.poisoned_padding import PoisonMeasured, find_poison, measure_poison
from gradwise.specs.contracts import Batch
from gradwise.specs.paths import Buffer

HERE = Path(__file__).name

KEY = jr.key(0)
DRAWS = np.random.default_rng(0)
ROWS = DRAWS.normal(size=(12, 3)).astype("float32")
TARGETS = ROWS @ np.array([1.0, -2.0, 0.5], "float32")
WEIGHTS = np.array([1, 2, 1, 1, 3, 1, 1, 1, 1, 0, 0, 0], "float32")
MODEL = {"w": jr.normal(KEY, (3,)), "b": jnp.asarray(0.3)}

STEPS = DRAWS.normal(size=(6, 5, 2)).astype("float32")
MASK = (np.arange(5)[None] < np.array([5, 3, 2, 4, 1, 5])[:, None]).astype("float32")
CELL = {"w": jr.normal(jr.key(1), (2, 4)), "u": 0.5 * jr.normal(jr.key(2), (4, 4)), "v": jr.normal(jr.key(3), (4,))}


def run(model, batch, key):
    return batch["inputs"] @ model["w"] + model["b"]


def errors(model, batch):
    return (batch["x"] @ model["w"] + model["b"] - batch["y"]) ** 2


def codes(subject):
    return [(finding.code, finding.level) for finding in find_poison(measure_poison(subject, key=KEY))]


def rows(weights=WEIGHTS, name="weights"):
    return {"x": ROWS, "y": TARGETS, name: weights}


def test_weights_that_count_raise_nothing_and_ignored_ones_an_error():
    def weighted(model, batch):
        return jnp.sum(batch["weights"] * errors(model, batch)) / jnp.sum(batch["weights"])

    def ignoring(model, batch):
        return jnp.mean(errors(model, batch))

    assert codes(Subject.of(ignoring, MODEL, rows())) == [("GW310", "error")]
    assert codes(Subject.of(ignoring, MODEL, rows(np.ones(12, "float32")))) == [("GW310", "error")]
    assert codes(Subject.of(weighted, MODEL, rows(np.ones(12, "float32")))) == []
    # A product with 0 is sound as long as what it multiplies is a number: that much is noted.
    assert codes(Subject.of(weighted, MODEL, rows())) == [("GW301", "note")]


def test_a_mask_that_only_divides_lets_padding_in():
    def wrong(model, batch):
        return jnp.sum(errors(model, batch)) / jnp.sum(batch["mask"])

    def right(model, batch):
        known = batch["mask"] > 0
        inputs = jnp.where(known[:, None], batch["x"], 0.0)
        squares = (inputs @ model["w"] + model["b"] - jnp.where(known, batch["y"], 0.0)) ** 2
        return jnp.sum(jnp.where(known, squares, 0.0)) / jnp.sum(batch["mask"])

    mask = np.minimum(WEIGHTS, 1)
    measured = measure_poison(Subject.of(wrong, MODEL, rows(mask, "mask")), key=KEY)
    (finding,) = find_poison(measured)
    assert (finding.code, finding.level) == ("GW301", "error")
    assert finding.where.startswith(f"{HERE}:")
    assert "3 slots" in finding.what
    assert measured.inputs_poisoned
    assert measured.targets_poisoned
    # The oracle: the loss with the same other values, by NumPy, is what moved.
    assert measured.targets_read > 1e-3
    assert codes(Subject.of(right, MODEL, rows(mask, "mask"))) == []


def reads_all(model, batch):
    """A recurrent net that reads on past the end of each sequence."""
    state = jnp.zeros((len(batch["inputs"]), 4))
    for step in range(5):
        state = jnp.tanh(batch["inputs"][:, step] @ model["w"] + state @ model["u"])
    return jnp.mean((state @ model["v"] - batch["y"]) ** 2)


def reads_used(model, batch):
    state = jnp.zeros((len(batch["inputs"]), 4))
    for step in range(5):
        used = batch["mask"][:, step : step + 1] > 0
        inputs = jnp.where(used, batch["inputs"][:, step], 0.0)
        state = jnp.where(used, jnp.tanh(inputs @ model["w"] + state @ model["u"]), state)
    return jnp.mean((state @ model["v"] - batch["y"]) ** 2)


def test_a_recurrent_net_that_reads_past_the_end_is_caught():
    batch = {"inputs": STEPS, "y": STEPS[:, 0, 0], "mask": MASK}
    (finding,) = find_poison(measure_poison(Subject.of(reads_all, CELL, batch), key=KEY))
    assert (finding.code, finding.level) == ("GW301", "error")
    assert "`mask` itself has no effect" in finding.what
    assert "10 positions" in finding.what
    assert codes(Subject.of(reads_used, CELL, batch)) == []


def test_positions_chosen_for_prediction_are_no_padding():
    """Masked modelling: the mask chooses what is predicted, the other inputs are context and must be read."""
    chosen = np.zeros((6, 5), "float32")
    chosen[np.arange(6), np.arange(6) % 5] = 1

    def masked(model, batch):
        context = jnp.mean(jnp.tanh(batch["inputs"] @ model["w"]), axis=1) @ model["v"]
        squares = (context[:, None] - batch["y"]) ** 2
        return jnp.sum(jnp.where(batch["mask"] > 0, squares, 0.0)) / jnp.sum(batch["mask"])

    batch = {"inputs": STEPS, "y": STEPS[:, :, 0], "mask": chosen}
    measured = measure_poison(Subject.of(masked, CELL, batch), key=KEY)
    assert measured.inputs_read > 1e-3
    assert measured.targets_read == 0
    assert not [finding for finding in find_poison(measured) if finding.level != "note"]


def test_batch_statistics_that_see_unused_slots_are_a_note():
    def outputs(model, inputs):
        hidden = inputs * model["w"]
        return ((hidden - hidden.mean(0)) / (hidden.std(0) + 1e-3)).sum(1) + model["b"]

    def normalised(model, batch):
        squares = (outputs(model, batch["x"]) - batch["y"]) ** 2
        return jnp.sum(jnp.where(batch["mask"] > 0, squares, 0.0)) / jnp.sum(batch["mask"])

    mask = np.minimum(WEIGHTS, 1)
    (finding,) = find_poison(measure_poison(Subject.of(normalised, MODEL, rows(mask, "mask"), apply=outputs), key=KEY))
    assert (finding.code, finding.level) == ("GW301", "note")
    assert "statistics" in finding.what


def test_gradwise_batches_and_unnamed_indicators():
    def batch(weights):
        return Batch(ROWS, TARGETS, weights, np.minimum(weights, 1), jnp.asarray(12.0))

    def by_contract(model, batch):
        squares = (batch.inputs @ model["w"] + model["b"] - batch.targets) ** 2
        return jnp.sum(batch.weights * squares) / batch.weights.shape[0]

    def ignoring(model, batch):
        return jnp.mean((batch.inputs @ model["w"] + model["b"] - batch.targets) ** 2)

    assert codes(Subject.of(by_contract, MODEL, batch(WEIGHTS))) == []
    assert codes(Subject.of(by_contract, MODEL, batch(np.ones(12, "float32")))) == []
    assert codes(Subject.of(ignoring, MODEL, batch(WEIGHTS))) == [("GW310", "error")]

    def survival(model, inputs, times, event):
        """Censored examples have a 0 in the third place, and count all the same: sound."""
        rate = inputs @ model["w"] + model["b"]
        return jnp.mean(jnp.exp(rate) * times - event * rate)

    given = (ROWS, np.abs(TARGETS), np.minimum(WEIGHTS, 1))
    assert "error" not in [level for _, level in codes(Subject.of(survival, MODEL, given))]


class Normalised(eqx.Module):
    weight: jax.Array
    moments: Buffer
    stored: bool = eqx.field(static=True)

    def __call__(self, inputs):
        hidden = inputs * self.weight
        mean = self.moments.value if self.stored else hidden.mean(0)
        return (hidden - mean).sum(-1)


@pytest.mark.parametrize("stored", [True, False])
def test_stored_statistics_read_in_training_are_noted(stored):
    model = Normalised(jnp.ones(3), Buffer(jnp.full(3, 0.25)), stored)
    subject = Subject.of(lambda model, x, y: jnp.mean((model(x) - y) ** 2), model, (ROWS, TARGETS))
    findings = find_poison(measure_poison(subject, key=KEY))
    assert [(f.code, f.level, f.where) for f in findings] == ([("GW301", "note", "moments")] if stored else [])


def test_only_what_is_certain_is_an_error():
    """`find_poison` on made-up numbers: which of them is an error, and which is said at all."""
    base = PoisonMeasured("mask", "mask", unused=2, inputs_read=0.0, targets_read=0.0, mark_read=1.0)
    assert find_poison(base) == ()
    assert find_poison(PoisonMeasured()) == ()
    for inputs, targets in itertools.product((0.0, 0.3), repeat=2):
        found = find_poison(dataclasses.replace(base, inputs_read=inputs, targets_read=targets))
        assert [f.level for f in found] == (["error"] if targets else ["warning"] if inputs else [])
    noted = dataclasses.replace(base, inputs_poisoned=True)
    assert [f.level for f in find_poison(noted)] == ["note"]
    assert find_poison(dataclasses.replace(noted, ours=True)) == ()
    assert [f.level for f in find_poison(dataclasses.replace(base, named=False, targets_read=0.3))] == ["warning"]
    through = dataclasses.replace(base, kind="weights", made=True, inputs_read=0.1, spread=0.1)
    assert [f.level for f in find_poison(through)] == ["note"]
    assert find_poison(dataclasses.replace(through, ours=True)) == ()
    assert [f.level for f in find_poison(dataclasses.replace(through, made=False, targets_read=0.1))] == ["error"]
    assert noted.inputs_poisoned is True
