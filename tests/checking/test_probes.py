"""Subjects with one thing altered: only that thing is, and by as much as was asked."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from gradwise.checking import probes
from gradwise.checking.batch_access import inputs_of, take, targets_of, with_targets
from gradwise.checking.subject import Subject
from gradwise.specs.contracts import Batch

KEY = jr.key(0)
ROWS = np.random.default_rng(0).normal(size=(40, 7)).astype("float32")
CLASSES = np.where(np.arange(40) < 37, 0, np.arange(40) - 36)  # three rare classes at the end


class Net(eqx.Module):
    linear: eqx.nn.Linear
    dropout: eqx.nn.Dropout

    def __call__(self, x, key=None):
        return self.linear(self.dropout(x, key=key))


def loss(model, batch, key):
    outputs = jax.vmap(model)(batch[0], jr.split(key, len(batch[0])))
    return -jnp.mean(jax.nn.log_softmax(outputs)[jnp.arange(len(batch[1])), batch[1]])


SUBJECT = Subject.of(loss, Net(eqx.nn.Linear(7, 5, key=KEY), eqx.nn.Dropout(0.5)), (ROWS, CLASSES))


def test_points_lie_so_many_root_mean_squares_away():
    given = {"w": jnp.full((300, 100), 4.0), "zero": jnp.zeros(10_000), "none": jnp.zeros((0, 3))}
    near = probes.points(given, (0.0, 0.5, 0.5), key=KEY)
    assert np.array_equal(near["w"][0], given["w"])
    np.testing.assert_allclose(near["w"][1:].std(axis=(1, 2)), 2.0, rtol=0.02)
    np.testing.assert_allclose(near["zero"][1:].std(axis=1), 0.05, rtol=0.03)
    assert not np.array_equal(near["w"][1], near["w"][2])
    assert near["w"].dtype == np.float32
    assert near["none"].shape == (3, 0, 3)


def test_a_prime_number_of_rows_that_no_other_axis_has_with_all_classes():
    rows = probes.prime_rows(SUBJECT)
    assert len(rows) == 11  # 7 inputs, 5 classes
    assert set(CLASSES[rows]) == {0, 1, 2, 3}
    assert len(probes.prime_rows(SUBJECT, np.arange(4))) == 3
    assert set(probes.prime_rows(SUBJECT, np.arange(20, 33))) <= set(range(20, 33))


def test_noise_is_switched_off_beside_the_parameters():
    def outputs(parameters, inputs):
        assert SUBJECT.outputs is not None
        return SUBJECT.outputs(probes.in_evaluation_mode(SUBJECT, parameters), inputs, KEY), SUBJECT.outputs(
            parameters, inputs, KEY
        )

    quiet, noisy = probes.attempt(outputs, SUBJECT.parameters, ROWS)
    linear = SUBJECT.model_of(SUBJECT.parameters).linear
    expected = np.asarray(ROWS, float) @ np.asarray(linear.weight, float).T + np.asarray(linear.bias, float)
    np.testing.assert_allclose(quiet, expected, rtol=1e-12)
    assert np.abs(noisy - expected).max() > 0.1
    assert probes.has_switches(SUBJECT)
    assert probes.dropouts(SUBJECT.model_of(SUBJECT.parameters)) == {"dropout": 0.5}
    plain = Subject.of(lambda w, x: jnp.mean(x @ w), jnp.ones(7), ROWS)
    assert not probes.has_switches(plain)


def test_what_cannot_be_traced_is_none_and_stubborn_programs_stay_in_32_bits():
    def insists(w, x):
        return jnp.mean(jnp.reshape(x, (40, 7)) @ w)

    def stubborn(w, x):
        return jax.lax.scan(lambda total, row: (total + row @ w, None), jnp.zeros((), jnp.float32), x)[0]

    assert probes.attempt(insists, jnp.ones(7), ROWS[:10]) is None
    assert probes.attempt(insists, jnp.ones(7), ROWS).dtype == np.float64
    assert probes.bits_of(Subject.of(insists, jnp.ones(7), ROWS)) == 64
    assert probes.bits_of(Subject.of(stubborn, jnp.ones(7), ROWS)) == 32


def test_targets_are_exchanged_in_every_kind_of_batch():
    other = CLASSES[::-1]
    ones = np.ones(40, "float32")
    kinds = (
        (ROWS, CLASSES, ones),
        [ROWS, CLASSES],
        {"x": ROWS, "label": CLASSES},
        Batch(ROWS, CLASSES, ones, ones, jnp.asarray(40.0)),
    )
    for batch in kinds:
        changed = with_targets(batch, other)
        assert type(changed) is type(batch)
        assert np.array_equal(targets_of(changed), other)
        assert inputs_of(changed) is inputs_of(batch)
        assert np.array_equal(targets_of(take(changed, np.arange(3))), other[:3])


def test_changes_are_exact_and_nothing_is_infinitely_far():
    before, after = np.array([1.0, np.nan, 2.0, np.inf, 3.0]), np.array([1.5, np.nan, np.nan, np.inf, 3.0])
    assert probes.change_of(before, after).tolist() == [0.5, 0.0, np.inf, 0.0, 0.0]
    assert probes.magnitude_of(np.array([-3.0, np.nan, 1.0])) == 3.0
    assert probes.magnitude_of(np.array([])) == 0.0
