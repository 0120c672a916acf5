"""A line search that fails twice has stalled, wherever in an optimiser it stands."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gradwise.runtime.line_search_state import LineSearch, line_search, stalled


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
