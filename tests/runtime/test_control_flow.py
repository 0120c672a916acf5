"""Costly work now and then, and line searches that end a run."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gradwise.runtime.control_flow import LineSearch, line_search, stalled, when

# --- when


def odd(number: Any) -> tuple[Any, dict[str, Any]]:
    """Numbers whose every bit shows, with one that is not a number among them."""
    return jnp.asarray([0.1, -0.0, jnp.nan]) * number, {"count": jnp.asarray(7, jnp.int32)}


def bits(tree: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def changed(tree: Any) -> Any:
    return tree[0] + 1.0, {"count": tree[1]["count"] + 1}


def test_when_it_is_due_it_is_done_and_else_nothing_changes() -> None:
    run = jax.jit(lambda due, operand: when(due, changed, operand))
    operand = odd(1.0)
    assert bits(run(jnp.asarray(False), operand)) == bits(operand)
    done = run(jnp.asarray(True), operand)
    np.testing.assert_array_equal(done[0], operand[0] + 1.0)
    assert int(done[1]["count"]) == 8


def test_in_a_population_only_those_who_are_due_change() -> None:
    many = jax.vmap(odd)(jnp.arange(1.0, 5.0))
    due = jnp.asarray([False, True, False, True])
    found = jax.jit(jax.vmap(lambda due, operand: when(due, changed, operand)))(due, many)
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
            return jax.vmap(lambda one, d: when(d, costly, one))(x, due), None

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
    done = when(jnp.asarray(True), lambda x: (1.0, x[1] * 2.5), (jnp.zeros((), jnp.float16), jnp.asarray(2, jnp.int32)))
    assert [leaf.dtype for leaf in done] == [jnp.float16, jnp.int32]
    assert [float(leaf) for leaf in done] == [1.0, 5.0]


# --- line searches


def after(*found: bool) -> LineSearch:
    record = line_search()
    for one in found:
        record = record.after(jnp.asarray(one))
    return record


def test_two_failures_in_a_row_give_up() -> None:
    assert not bool(stalled(after()))
    assert not bool(stalled(after(False)))
    assert bool(stalled(after(False, False)))
    assert bool(stalled(after(True, False, False, False)))
    assert not bool(stalled(after(False, True, False)))
    assert after(False).failures.dtype == jnp.int32


class Searching:
    """Finds a lower point at the updates that `found` says."""

    def __init__(self, *found: bool):
        self.found = jnp.asarray(found)

    def build(self) -> optax.GradientTransformationExtraArgs:
        def update(updates: Any, state: Any, parameters: Any = None, **extra: Any) -> Any:
            return updates, (state[0] + 1, state[1].after(self.found[state[0]]))

        return optax.GradientTransformationExtraArgs(lambda _: (jnp.zeros((), jnp.int32), line_search()), update)


def test_a_line_search_is_found_wherever_it_stands() -> None:
    def chained(*found: bool) -> Any:
        inner = optax.chain(optax.trace(0.9), Searching(*found).build())
        rule = optax.chain(
            optax.clip(1.0), optax.multi_transform({"a": inner, "b": optax.sgd(0.1)}, {"x": "a", "y": "b"})
        )
        point = {"x": jnp.ones(2), "y": jnp.ones(1)}
        state = rule.init(point)
        for _ in found:
            _, state = rule.update(point, state, point)
        return state

    assert not bool(stalled(chained(True, False)))
    assert bool(stalled(chained(True, False, False)))
    assert bool(stalled((chained(True), {"inner": after(False, False)})))  # one of several
    assert not bool(stalled(optax.adam(0.1).init(jnp.ones(2))))  # none at all
    assert stalled(()).shape == ()


def test_each_member_of_a_population_stalls_alone() -> None:
    records = jax.vmap(lambda found: after(True, False).after(found))(jnp.asarray([True, False]))
    np.testing.assert_array_equal(jax.vmap(stalled)(records), [False, True])
