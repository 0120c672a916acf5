"""Loops written out: the same numbers and derivatives, turn by turn, with lines and names that are still known."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from gradwise.specs.paths import trainable
from gradwise.tracing.layers import trace_layers
from gradwise.tracing.loops import MOST, turn_of, unrolled
from gradwise.tracing.program import Program, trace
from tests.marks import parametrize_one_quick

X = np.random.default_rng(0).normal(size=(4, 5, 3)).astype(np.float32)  # examples, times, features
CELL = {"wx": jr.normal(jr.key(0), (3, 6)), "wh": 0.5 * jr.normal(jr.key(1), (6, 6)), "b": jnp.zeros(6)}


def _forwards(model: Any, x: Any, key: Any) -> Any:
    def turn(state: Any, now: Any) -> Any:
        state = jnp.tanh(now @ model["wx"] + state @ model["wh"] + model["b"])
        return state, state

    last, all_ = jax.lax.scan(turn, jnp.zeros((x.shape[0], 6)), jnp.swapaxes(x, 0, 1))
    return jnp.mean(last**2) + jnp.mean(jnp.cumsum(all_, axis=0) ** 2)


def _backwards(model: Any, x: Any, key: Any) -> Any:
    def turn(carry: Any, now: Any) -> Any:
        state, age = carry
        return (jnp.sin(state + now @ model["wx"]), age + 1), state * age

    (last, age), all_ = jax.lax.scan(turn, (jnp.ones((x.shape[0], 6)), 0), jnp.swapaxes(x, 0, 1), reverse=True)
    return jnp.mean(last) * age + jnp.sum(all_[0] - 2 * all_[-1])


def _nested(model: Any, x: Any, key: Any) -> Any:
    def outer(total: Any, now: Any) -> Any:
        def inner(state: Any, _: Any) -> Any:
            return jnp.tanh(state @ model["wh"] + now @ model["wx"]), None

        return total + jax.lax.scan(inner, total, None, length=2)[0], None

    return jnp.mean(jax.lax.scan(outer, jnp.zeros((x.shape[0], 6)), jnp.swapaxes(x, 0, 1))[0])


def _noisy(model: Any, x: Any, key: Any) -> Any:
    def turn(state: Any, key: Any) -> Any:
        return state * jr.bernoulli(key, 0.7, state.shape) + model["b"] + 1.0, None

    return jnp.mean(jax.lax.scan(turn, x @ model["wx"], jr.split(key, 3))[0])


@parametrize_one_quick("loss", [_forwards, _backwards, _nested, _noisy])
def test_written_out_a_loop_gives_the_same_number_and_the_same_gradient(loss: Any) -> None:
    program = trace(loss, CELL, X, jr.key(3))
    assert not {site.primitive for site in program.sites} & {"scan", "while"}
    value, gradient = jax.value_and_grad(lambda model: program.run(model, X, jr.key(3))[0])(CELL)
    expected, right = jax.value_and_grad(loss)(CELL, X, jr.key(3))
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), gradient, right)


def _sites(program: Program, primitive: str) -> list[tuple[str, str]]:
    return [(site.turn, site.line.partition(" ")[2]) for site in program.sites if site.primitive == primitive]


def test_each_turn_is_named_and_keeps_the_users_lines() -> None:
    assert _sites(trace(_forwards, CELL, X, jr.key(0)), "tanh") == [(f"[{n}]", "in turn") for n in range(5)]
    assert _sites(trace(_backwards, CELL, X, jr.key(0)), "sin") == [(f"[{n}]", "in turn") for n in (4, 3, 2, 1, 0)]
    twice = _sites(trace(_nested, CELL, X, jr.key(0)), "tanh")
    assert twice == [(f"[{n}][{m}]", "in inner") for n in range(5) for m in range(2)]
    assert turn_of("loss/[12]/cell/[3]/tanh") == "[12][3]"


def test_the_layers_of_a_recurrent_network_are_its_turns() -> None:
    _, layers = trace_layers(_forwards, CELL, X, jr.key(0))
    assert [layer.title for layer in layers] == ["wx[0]", "wh[1]", "wh[2]", "wh[3]", "wh[4]"]
    assert [layer.kind for layer in layers] == ["tanh"] * 4 + ["linear"]  # no parameter follows the last tanh
    assert layers[1].above == (2, 3, 4)
    assert all(layer.shared for layer in layers)


def test_all_sums_of_a_gated_cell_are_named_and_told_apart() -> None:
    cell = eqx.nn.GRUCell(3, 4, key=jr.key(0))
    parameters, rest = trainable(cell)

    def loss(parameters: Any, x: Any, key: Any) -> Any:
        run = eqx.combine(parameters, rest)
        last = jax.vmap(lambda rows: jax.lax.scan(lambda h, row: (run(row, h), None), jnp.zeros(4), rows)[0])(x)
        return jnp.mean(last**2)

    _, layers = trace_layers(loss, parameters, X, jr.key(0))
    titles = [layer.title for layer in layers]
    assert len(set(titles)) == len(titles) > 15
    assert all(any(f"[{turn}]" in title for title in titles) for turn in range(5))


def test_layers_that_are_stacked_and_scanned_over_are_known_by_their_parameters() -> None:
    model = {"blocks": {"weight": jr.normal(jr.key(0), (3, 4, 4)), "bias": jnp.zeros((3, 4))}}

    def loss(model: Any, x: Any, key: Any) -> Any:
        def block(x: Any, own: Any) -> Any:
            return jax.nn.relu(x @ own["weight"] + own["bias"]), None

        return jnp.sum(jax.lax.scan(block, x, model["blocks"])[0])

    program, layers = trace_layers(loss, model, np.ones((7, 4), np.float32), jr.key(0))
    assert [layer.title for layer in layers[:2]] == ["blocks[0]", "blocks[1]"]
    assert not any(layer.shared for layer in layers)
    products = [site.parameters for site in program.sites if site.primitive == "dot_general"]
    assert products == [("blocks.weight",)] * 3


def test_a_long_loop_stays_whole() -> None:
    def loss(model: Any, x: Any, key: Any) -> Any:
        return jnp.sum(jax.lax.scan(lambda s, _: (s * model["b"], None), x, None, length=MOST + 1)[0])

    program = trace(loss, {"b": jnp.ones(3)}, np.ones((2, 3), np.float32), jr.key(0))
    assert "scan" in {site.primitive for site in program.sites}
    (equation,) = [one for one in program.closed.jaxpr.eqns if one.primitive.name == "scan"]
    assert unrolled(equation) is None
