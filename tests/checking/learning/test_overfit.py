"""Sound problems are learned by heart and raise nothing; what cannot learn is told with its level."""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from gradwise.checking.learning.overfit import OverfitMeasured, chosen_rows, find_overfit, measure_overfit
from gradwise.checking.subject import Subject
from gradwise.records.finding import Finding
from tests.checking.digit_net import BATCH, KEY, cross_entropy, logits, subject


def _overfit(subject: Subject) -> tuple[OverfitMeasured, tuple[Finding, ...]]:
    measured = measure_overfit(subject, updates=100, key=KEY)
    assert measured is not None
    return measured, find_overfit(measured)


@pytest.mark.slow
def test_a_net_learns_eight_examples_by_heart_whatever_their_labels() -> None:
    shuffled = (BATCH[0], jnp.asarray(np.random.default_rng(0).permutation(np.asarray(BATCH[1]))))
    measured, findings = _overfit(subject(batch=shuffled))
    assert measured.learned
    assert measured.wrong[0] == 0
    assert measured.ends[0] < 1e-3 * measured.starts[0]
    assert measured.curves.shape == (3, 101)
    assert findings == ()
    assert measured.kind == "classes"
    assert measured.evidence().learned is True


def test_a_linear_model_learns_eight_numbers_by_heart_through_a_sum() -> None:
    numbers = load_diabetes()
    batch = (jnp.asarray(numbers.data[:40] * 20, jnp.float32), jnp.asarray(numbers.target[:40] / 77, jnp.float32))
    measured, findings = _overfit(
        subject(
            lambda p, x: x @ p["w"] + p["b"],
            {"w": jnp.zeros(10), "b": jnp.zeros(())},
            batch,
            lambda p, batch: jnp.sum((batch[0] @ p["w"] + p["b"] - batch[1]) ** 2),
        )
    )
    assert measured.residual[0] < 0.05
    assert findings == ()


def test_dropout_and_batch_statistics_raise_nothing() -> None:
    def noisy(p: dict[str, jax.Array], x: jax.Array, key: Any = None) -> jax.Array:
        hidden = x @ p["w"] + p["b"]
        hidden = jax.nn.relu((hidden - hidden.mean(0)) / (hidden.std(0) + 1e-3))
        mask = jnp.ones_like(hidden) if key is None else jax.random.bernoulli(key, 0.5, hidden.shape) * 2.0
        return hidden * mask @ p["v"] + p["c"]

    loss = lambda p, batch, key: cross_entropy(noisy(p, batch[0], jax.random.split(key)[0]), batch[1])  # noqa: E731
    measured, findings = _overfit(subject(noisy, loss=loss))
    assert measured.learned
    assert findings == ()


@pytest.mark.slow
def test_an_output_that_ignores_its_inputs_is_an_error() -> None:
    measured, findings = _overfit(subject(lambda p, x: logits(p, x * 0.0)))
    assert [(one.code, one.level) for one in findings] == [("GW401", "error")]
    assert measured.criterion == pytest.approx(math.log(8), rel=1e-3)  # one example of eight classes each
    assert measured.spread.max() == 0
    assert "the outputs are the same" in findings[0].what


@pytest.mark.slow
def test_a_gradient_uphill_is_an_error_and_one_straight_through_is_not() -> None:
    def uphill(p: Any, batch: Any) -> jax.Array:
        loss = cross_entropy(logits(p, batch[0]), batch[1])
        return 2 * jax.lax.stop_gradient(loss) - loss

    _, findings = _overfit(subject(loss=uphill))
    assert [(one.code, one.level) for one in findings] == [("GW401", "error")]
    assert "although the gradient is not 0" in findings[0].what

    def signs(p: Any, x: jax.Array) -> jax.Array:
        hidden = x @ p["w"] + p["b"]
        hidden = hidden + jax.lax.stop_gradient(jnp.sign(hidden) - hidden)
        return hidden @ p["v"] + p["c"]

    assert _overfit(subject(signs))[1] == ()


@pytest.mark.slow
def test_a_penalty_that_outweighs_the_loss_is_only_noted() -> None:
    def loss(p: Any, batch: Any) -> jax.Array:
        squares = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(p))
        return cross_entropy(logits(p, batch[0]), batch[1]) + 5.0 * squares

    findings = _overfit(subject(loss=loss))[1]
    assert all(one.level == "note" for one in findings)


def test_examples_differ_and_come_from_all_classes() -> None:
    inputs = np.repeat(np.arange(10.0), 3)[:, None]
    targets = np.repeat([0, 0, 0, 0, 0, 1, 1, 2, 2, 2], 3)
    rows = chosen_rows((inputs, targets), 6)
    assert sorted(targets[rows].tolist()) == [0, 0, 1, 1, 2, 2]
    assert len(set(inputs[rows, 0])) == 6
    assert measure_overfit(subject(batch=(BATCH[0][:1], BATCH[1][:1])), key=KEY) is None


def _measured(**changed: Any) -> OverfitMeasured:
    three: dict[str, Any] = {
        name: np.full(3, value) for name, value in (("starts", 2.3), ("ends", 2.08), ("slopes", 1.0))
    }
    blank: dict[str, Any] = {name: np.full(3, math.nan) for name in ("wrong", "residual", "spread")}
    plain = OverfitMeasured(8, 500, **three, curves=np.zeros((3, 1)), **blank)
    return dataclasses.replace(plain, **changed)


def test_only_what_is_certain_is_an_error() -> None:
    constant = {"criterion": 2.08, "constant": 2.08, "penalty": 0.0, "kind": "classes", "wrong": np.full(3, 0.9)}

    def level(**changed: Any) -> list[str]:
        return [one.level for one in find_overfit(_measured(**changed))]

    assert level(**constant, spread=np.zeros(3)) == ["error"]
    assert level(**constant, spread=np.zeros(3), scaled=False) == ["warning"]
    assert level(**constant, spread=np.full(3, 0.01)) == ["warning"]  # a plateau may be left later
    assert level(**{**constant, "penalty": 0.5}, spread=np.zeros(3)) == ["note"]
    assert level(**constant, spread=np.zeros(3), parameters=8) == []
    assert level(ends=np.full(3, 2.3)) == ["error"]
    assert level(ends=np.full(3, 2.3), slopes=np.full(3, 1e-4)) == []  # at a minimum
    assert level(ends=np.full(3, 2.3), second=1.0) == []
    assert level(ends=np.full(3, 0.5)) == []  # lower, and not recognised: nothing is certain
    assert level(ends=np.array([0.01, 2.3, 2.3])) == []  # one starting point is enough
    assert find_overfit(None) == ()


def test_an_equinox_net_is_learned_by_heart_with_a_part_of_it_frozen() -> None:
    net = eqx.nn.MLP(64, 10, 16, 1, key=jax.random.key(0))
    loss = lambda model, x, y: cross_entropy(jax.vmap(model)(x), y)  # noqa: E731
    measured = measure_overfit(Subject.of(loss, net, BATCH, frozen="layers.0.*"), updates=100, key=KEY)
    assert measured is not None
    assert measured.learned
    assert measured.parameters == 16 * 10 + 10
