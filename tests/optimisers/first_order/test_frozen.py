"""The optimiser that moves nothing."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.optimisers.first_order.frozen import Frozen
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.optimisers.wrappers.parameter_groups import Grouped, ParameterGroup
from gradwise.testing.spec_contracts import check_spec

START = {"layers": {"weight": jnp.asarray([[0.1, 0.7]])}, "output": {"weight": jnp.asarray([3.0])}}


def test_it_is_a_spec_like_any_other() -> None:
    check_spec(Frozen())


def test_nothing_moves_whatever_the_gradient() -> None:
    rule = Frozen().build()
    gradient = jax.tree.map(lambda leaf: leaf * jnp.nan, START)
    moves, state = rule.update(gradient, rule.init(START), START, value=1.0)
    assert all(np.array_equal(move, np.zeros_like(move)) for move in jax.tree.leaves(moves))
    assert Frozen().judged(START, state) is START
    assert float(Frozen().rate(state)) == 0.0


def test_in_a_group_the_others_move_as_ever_and_averages_keep_it_still() -> None:
    """The output shrinks by a tenth an update; the layer keeps every bit, also in the average that is judged."""
    optimiser = MovingAverage(Grouped(Sgd(0.1), groups=(ParameterGroup("layers.*", Frozen()),)), decay=0.9)

    @eqx.filter_jit
    def run():
        def body(carry, _):
            point, state = carry
            moves, state = optimiser.build().update(point, state, point, value=1.0)
            return (optax.apply_updates(point, moves), state), None

        (point, state), _ = jax.lax.scan(body, (START, optimiser.build().init(START)), None, length=20)
        return point, optimiser.judged(point, state), optimiser.rate(state)

    point, judged, rate = run()
    for tree in (point, judged):
        assert np.array_equal(tree["layers"]["weight"], START["layers"]["weight"])
    np.testing.assert_allclose(point["output"]["weight"], 3.0 * 0.9**20, rtol=1e-5)
    np.testing.assert_allclose(rate, 0.1, rtol=1e-6)
