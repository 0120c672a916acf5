"""Links, ends and penalties are read from programs however they were written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gradwise.checking.wiring.loss_structure import bounds_of, end_of, links_twice, penalties_of
from gradwise.tracing.program import Program, trace

HERE = Path(__file__).name

PARAMETERS = {"w": jnp.full((3, 4), 0.1), "v": jnp.full((4, 4), 0.2), "b": jnp.zeros(4)}
BATCH = (jnp.ones((5, 3)), jnp.arange(5) % 4)
ONE_HOT = jnp.eye(4)[BATCH[1]]


def _program(function: Callable[..., Any]) -> Program:
    return trace(lambda p, b, k: function(p, b), PARAMETERS, BATCH, jax.random.key(0))


def _logits(p: Any, b: Any) -> Any:
    return b[0] @ p["w"] + p["b"]


def _own_softmax(a: Any) -> Any:
    top = jnp.exp(a - jnp.max(a, axis=-1, keepdims=True))
    return top / jnp.sum(top, axis=-1, keepdims=True)


def _cross_entropy(a: Any, b: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(a, b[1]).mean()


TWICE = {
    "softmax then cross-entropy": lambda p, b: _cross_entropy(jax.nn.softmax(_logits(p, b)), b),
    "own softmax then own log": lambda p, b: -jnp.log(_own_softmax(_own_softmax(_logits(p, b)))).mean(),
    "sigmoid then softmax": lambda p, b: _cross_entropy(jax.nn.sigmoid(_logits(p, b)), b),
    "sigmoid then binary": lambda p, b: optax.sigmoid_binary_cross_entropy(
        jax.nn.sigmoid(_logits(p, b)), ONE_HOT
    ).mean(),
    "sigmoid then softplus by hand": lambda p, b: jnp.log1p(jnp.exp(-jax.nn.sigmoid(_logits(p, b)))).mean(),
    "with a penalty": lambda p, b: _cross_entropy(jax.nn.softmax(_logits(p, b)), b) + 0.1 * jnp.sum(p["w"] ** 2),
}
ONCE = {
    "logits": lambda p, b: _cross_entropy(_logits(p, b), b),
    "softmax then log": lambda p, b: -jnp.log(jax.nn.softmax(_logits(p, b))[jnp.arange(5), b[1]]).mean(),
    "hidden sigmoids": lambda p, b: _cross_entropy(jax.nn.sigmoid(_logits(p, b)) @ p["v"], b),
    "softmax weights of a layer": lambda p, b: _cross_entropy(jax.nn.softmax(_logits(p, b)) @ p["v"] + p["b"], b),
    "a gate": lambda p, b: _cross_entropy(jax.nn.sigmoid(_logits(p, b)) * _logits(p, b), b),
    "bounded logits on purpose": lambda p, b: _cross_entropy(10.0 * jax.nn.sigmoid(_logits(p, b)), b),
    "a mixture": lambda p, b: -jax.nn.logsumexp(jax.nn.log_softmax(p["b"]) + _logits(p, b), axis=1).mean(),
    "distillation": lambda p, b: -(jax.nn.softmax(_logits(p, b)) * jax.nn.log_softmax(2 * _logits(p, b))).mean(),
    "a hinge": lambda p, b: jnp.maximum(0.0, 1.0 - (2 * ONE_HOT - 1) * _logits(p, b)).mean(),
    "focal": lambda p, b: ((1 - jax.nn.sigmoid(_logits(p, b))) ** 2 * jax.nn.softplus(-_logits(p, b))).mean(),
}


@pytest.mark.parametrize("name", TWICE)
def test_a_link_after_a_link_is_found_with_both_lines(name: str) -> None:
    found = links_twice(_program(TWICE[name]))
    assert found is not None
    first, second, link, _ = found
    assert link in name.replace("sigmoid", "logistic") or link == "softmax"
    assert first.number < second.number
    assert f"{HERE}:" in first.line
    assert f"{HERE}:" in second.line


@pytest.mark.parametrize("name", ONCE)
def test_a_single_link_is_none_twice(name: str) -> None:
    assert links_twice(_program(ONCE[name])) is None


@pytest.mark.parametrize(
    ("function", "title", "bounds", "scaled"),
    [
        (jax.nn.relu, "relu", (0.0, np.inf), False),
        (jax.nn.sigmoid, "logistic", (0.0, 1.0), False),
        (jnp.tanh, "tanh", (-1.0, 1.0), False),
        (lambda a: 300.0 * jax.nn.sigmoid(a) + 5.0, "logistic", (0.0, 1.0), True),
        (lambda a: jnp.clip(a, -1.0, 1.0), "min", (-np.inf, np.inf), False),
        (lambda a: jax.nn.relu(a).reshape(5, 4), "relu", (0.0, np.inf), False),
        (_own_softmax, "div", (0.0, 1.0), False),
    ],
)
def test_the_end_of_the_outputs_is_named(
    function: Callable[..., Any], title: str, bounds: tuple[float, float], scaled: bool
) -> None:
    found = end_of(_program(lambda p, b: function(_logits(p, b))), (5, 4))
    assert found is not None
    site, moved = found
    assert (site.title, bounds_of(site), moved) == (title, bounds, scaled)


@pytest.mark.parametrize("function", [lambda a: a, lambda a: a - 3.0, lambda a: jax.nn.relu(a) @ PARAMETERS["v"]])
def test_linear_outputs_have_no_end(function: Callable[..., Any]) -> None:
    assert end_of(_program(lambda p, b: function(_logits(p, b))), (5, 4)) is None


def test_penalties_are_what_is_added_and_of_parameters_alone() -> None:
    def decayed(p: Any, b: Any) -> Any:
        return 2.0 * (_cross_entropy(_logits(p, b), b) + 0.1 * jnp.sum(p["w"] ** 2) + jnp.abs(p["v"]).sum())

    program = _program(decayed)
    sites = penalties_of(program)
    _, kept = program.run(PARAMETERS, BATCH, jax.random.key(0), keep=[site.number for site in sites])
    assert sorted(float(value) for value in kept.values()) == pytest.approx([0.1 * 12 * 0.01, 16 * 0.2])
    by_share = _program(lambda p, b: _cross_entropy(_logits(p, b), b) + jnp.sum(b[0]) / 1e3 * jnp.sum(p["w"] ** 2))
    assert len(penalties_of(by_share)) == 1  # a factor of the batch alone leaves it a penalty
    heated = _program(lambda p, b: _cross_entropy(_logits(p, b) * jnp.exp(jnp.sum(p["b"])), b))
    assert penalties_of(heated) == []  # a temperature is no penalty
