"""Examples that leak and losses that pair them wrongly, each beside its sound twin and the unusual but sound."""

import dataclasses
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from gradwise.checking.subject import Subject
from gradwise.checking.wiring.example_mixing import Leak, MixingMeasured, find_mixing, measure_mixing

HERE = Path(__file__).name

KEY = jr.key(0)
DRAWS = np.random.default_rng(0)
ROWS = DRAWS.normal(size=(24, 4)).astype("float32")
CLASSES = np.arange(24) % 3
NUMBERS = (ROWS @ np.array([1.0, -1.0, 0.5, 0.2]) + 0.1).astype("float32")
WEIGHTS = {
    "first": {"w": 0.5 * jr.normal(jr.key(1), (4, 8)), "b": jnp.zeros(8)},
    "last": {"w": 0.5 * jr.normal(jr.key(2), (8, 3)), "b": jnp.zeros(3)},
}
ONE = {**WEIGHTS, "last": {"w": jnp.zeros((8, 1)), "b": jnp.zeros(1)}}  # all outputs equal, as many begin


def network(model, inputs, between=lambda hidden: hidden):
    hidden = jnp.tanh(inputs @ model["first"]["w"] + model["first"]["b"])
    return between(hidden) @ model["last"]["w"] + model["last"]["b"]


def normalised_wrong(hidden):
    return hidden - hidden.mean(0)  # the wrong mean


def normalised_right(hidden):
    return hidden - hidden.mean(1, keepdims=True)


def cross_entropy(outputs, targets):
    return optax.softmax_cross_entropy_with_integer_labels(outputs, targets).mean()


def found(loss, model, batch, **more):
    measured = measure_mixing(Subject.of(loss, model, batch, **more), key=KEY)
    return measured, find_mixing(measured)


@pytest.mark.parametrize(
    ("between", "line"),
    [(normalised_wrong, "normalised_wrong"), (lambda hidden: jax.nn.softmax(hidden, axis=0), "<lambda>")],
)
def test_a_leak_is_found_and_pinned_to_its_line(between, line):
    def apply(model, inputs):
        return network(model, inputs, between)

    measured, findings = found(
        lambda model, x, y: cross_entropy(apply(model, x), y), WEIGHTS, (ROWS, CLASSES), apply=apply
    )
    (finding,) = findings
    assert (finding.code, finding.level) == ("GW305", "error")
    assert finding.where.startswith(f"{HERE}:")
    assert finding.where.endswith(line)
    assert "after `first`" in finding.what
    assert measured.evaluation.primitive in ("reduce_sum", "reduce_max")
    # The oracle: what NumPy finds when one row is another's.
    assert measured.evaluation.size > 1e-3


def test_normalising_each_example_raises_nothing():
    def apply(model, inputs):
        return network(model, inputs, normalised_right)

    measured, findings = found(
        lambda model, x, y: cross_entropy(apply(model, x), y), WEIGHTS, (ROWS, CLASSES), apply=apply
    )
    assert findings == ()
    assert measured.evaluation.size == 0
    assert measured.pairs.max() > 1e-3
    assert np.count_nonzero(measured.pairs[~np.eye(len(measured.pairs), dtype=bool)] > 1e-12) == 0


class Normalised(eqx.Module):
    """Batch normalisation by an axis name, in training only."""

    linear: eqx.nn.Linear
    inference: bool = False

    def __call__(self, inputs):
        hidden = self.linear(inputs)
        return hidden if self.inference else hidden - jax.lax.pmean(hidden, "batch")


def test_batch_statistics_in_training_alone_are_a_note():
    def loss(model, x, y):
        return cross_entropy(jax.vmap(model, axis_name="batch")(x), y)

    _, findings = found(loss, Normalised(eqx.nn.Linear(4, 3, key=KEY)), (ROWS, CLASSES))
    assert [(f.code, f.level) for f in findings] == [("GW305", "note")]
    assert "batch statistics" in findings[0].what


def test_dropout_with_keys_of_its_own_is_no_leak():
    def apply(model, inputs, key):
        def dropped(hidden):
            return hidden if key is None else hidden * jr.bernoulli(key, 0.5, hidden.shape)

        return network(model, inputs, dropped)

    def loss(model, batch, key):
        return cross_entropy(apply(model, batch[0], key), batch[1])

    measured, findings = found(loss, WEIGHTS, (ROWS, CLASSES), apply=apply)
    assert findings == ()
    assert measured.training is not measured.evaluation


def test_a_softmax_over_the_examples_in_the_loss_is_found():
    def loss(model, x, y):
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(network(model, x), axis=0), y[:, None], 1))

    _, findings = found(loss, WEIGHTS, (ROWS, CLASSES), apply=network)
    assert [(f.code, f.level) for f in findings] == [("GW305", "error")]
    assert findings[0].where.endswith("in loss")


def test_outputs_broadcast_against_targets_are_found_even_where_all_outputs_begin_alike():
    def wrong(model, x, y):
        return jnp.mean((network(model, x) - y) ** 2)  # (B, 1) - (B,)

    def right(model, x, y):
        return jnp.mean((network(model, x)[:, 0] - y) ** 2)

    measured, (finding,) = found(wrong, ONE, (ROWS, NUMBERS), apply=network)
    assert (finding.code, finding.level) == ("GW311", "error")
    assert "B x B `sub`" in finding.what
    assert finding.where.endswith("in wrong")
    assert measured.rolled < 1e-9
    assert found(right, ONE, (ROWS, NUMBERS), apply=network)[1] == ()


def test_shifted_targets_are_found():
    def shifted(model, x, y):
        return cross_entropy(network(model, x), jnp.roll(y, 1))

    measured, (finding,) = found(shifted, WEIGHTS, (ROWS, CLASSES), apply=network)
    assert (finding.code, finding.level) == ("GW311", "error")
    assert np.array_equal(measured.pairs > 1e-9, np.roll(np.eye(len(measured.pairs)), 1, axis=0) > 0)


def contrastive(model, x, y):
    codes = network(model, x)
    alike = codes @ codes.T - 1e9 * jnp.eye(len(x))
    same = (y[:, None] == y[None]) & ~jnp.eye(len(x), dtype=bool)
    return -jnp.mean(jnp.where(same, jax.nn.log_softmax(alike, axis=1), 0.0))


def ranking(model, x, y):
    scores = network(model, x)[:, 0]
    return jnp.mean(jax.nn.softplus(-(scores[:, None] - scores[None]) * jnp.sign(y[:, None] - y[None])))


def two_samples(model, x, y):
    """The distance between outputs and targets as two samples: it is meant to ignore which belongs to which."""
    outputs = network(model, x)[:, 0]

    def kernel(a, b):
        return jnp.mean(jnp.exp(-((a[:, None] - b[None]) ** 2)))

    return kernel(outputs, outputs) - 2 * kernel(outputs, y)


def root_of_mean(model, x, y):
    return jnp.sqrt(jnp.mean((network(model, x)[:, 0] - y) ** 2))


@pytest.mark.parametrize("loss", [contrastive, ranking, two_samples, root_of_mean])
def test_losses_that_compare_examples_on_purpose_raise_nothing(loss):
    targets = CLASSES if loss is contrastive else NUMBERS
    measured, findings = found(loss, WEIGHTS, (ROWS, targets), apply=network)
    assert findings == ()
    assert measured.pairs[~np.eye(len(measured.pairs), dtype=bool)].max() > 1e-6


def test_numbers_alone_decide():
    """`find_mixing` on made-up tables."""
    sound = MixingMeasured(count=3, pairs=np.eye(3), rolled=0.5, whole=True)
    assert find_mixing(sound) == ()
    assert find_mixing(MixingMeasured()) == ()
    level = [f.level for f in find_mixing(dataclasses.replace(sound, pairs=np.ones((3, 3)), rolled=1e-12))]
    assert level == ["warning"]  # nothing was seen to meet: sums of outputs and of targets may be compared on purpose
    site = dataclasses.replace(sound, pairs=np.ones((3, 3)), rolled=1e-12, met=Leak(0.0, "sub", "", "a.py:1 in f"))
    assert [(f.level, f.where) for f in find_mixing(site)] == [("error", "a.py:1 in f")]
    assert find_mixing(dataclasses.replace(site, contrast=True)) == ()
    half = np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0.0]])
    assert [f.level for f in find_mixing(dataclasses.replace(sound, pairs=half))] == ["warning"]
    both = dataclasses.replace(sound, evaluation=Leak(0.1, "dot_general", "mix", ""), training=Leak(0.1))
    assert [(f.level, f.where) for f in find_mixing(both)] == [("error", "mix")]
