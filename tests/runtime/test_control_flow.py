"""Costly work now and then, and line searches that end a run."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradwise.runtime.control_flow import run_when


def odd(number: Any) -> tuple[Any, dict[str, Any]]:
    """Numbers whose every bit shows, with one that is not a number among them."""
    return jnp.asarray([0.1, -0.0, jnp.nan]) * number, {"count": jnp.asarray(7, jnp.int32)}


def bits(tree: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def changed(tree: Any) -> Any:
    return tree[0] + 1.0, {"count": tree[1]["count"] + 1}


def test_when_it_is_due_it_is_done_and_else_nothing_changes() -> None:
    run = jax.jit(lambda due, operand: run_when(due, changed, operand))
    operand = odd(1.0)
    assert bits(run(jnp.asarray(False), operand)) == bits(operand)
    done = run(jnp.asarray(True), operand)
    np.testing.assert_array_equal(done[0], operand[0] + 1.0)
    assert int(done[1]["count"]) == 8


def test_in_a_population_only_those_who_are_due_change() -> None:
    many = jax.vmap(odd)(jnp.arange(1.0, 5.0))
    due = jnp.asarray([False, True, False, True])
    found = jax.jit(jax.vmap(lambda due, operand: run_when(due, changed, operand)))(due, many)
    for number in range(4):
        before, after = (jax.tree.map(lambda leaf, n=number: leaf[n], tree) for tree in (many, found))
        assert bits(after) == bits(changed(before) if due[number] else before)


def test_the_work_is_done_only_where_somebody_is_due() -> None:
    """Counted where it runs: a `lax.cond` would run at each of the six updates."""
    runs: list[int] = []

    def costly(x: Any) -> Any:
        jax.debug.callback(lambda: runs.append(1))
        return x + 1.0

    def work(dues: Any) -> Any:
        def body(x: Any, due: Any) -> Any:
            return jax.vmap(lambda one, d: run_when(d, costly, one))(x, due), None

        return jax.lax.scan(body, jnp.zeros(3), dues)[0]

    dues = np.zeros((6, 3), bool)
    dues[1] = [True, False, False]
    dues[4] = [False, True, True]
    found = jax.block_until_ready(jax.jit(work)(jnp.asarray(dues)))
    jax.effects_barrier()
    np.testing.assert_array_equal(found, [1.0, 1.0, 1.0])
    assert 0 < len(runs) <= 2 * 3  # two updates, each at most once a member


def test_results_of_another_type_become_the_operands() -> None:
    """A weakly typed or wider result would end the loop in another type than it began with."""
    done = run_when(
        jnp.asarray(True), lambda x: (1.0, x[1] * 2.5), (jnp.zeros((), jnp.float16), jnp.asarray(2, jnp.int32))
    )
    assert [leaf.dtype for leaf in done] == [jnp.float16, jnp.int32]
    assert [float(leaf) for leaf in done] == [1.0, 5.0]
