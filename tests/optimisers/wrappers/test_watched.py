"""The monitor of training: it changes nothing, what it writes down is what the network was, and it forgets evenly."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise import defaults
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Fixed
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.averaging.parameter_average import PolyakAverage
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.optimisers.wrappers.parameter_groups import Grouped, ParameterGroup
from gradwise.optimisers.wrappers.watched import Watched, flow_of
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import AbstractOptimiser
from gradwise.testing.contracts import check_part
from gradwise.tracing.signal_flow import BINS
from gradwise.training.interval import advance
from gradwise.training.state import init, uses_objective

RANDOM = np.random.default_rng(0)
TRAIN = Examples(jnp.asarray(RANDOM.normal(size=(60, 4)), jnp.float32), jnp.asarray(RANDOM.integers(0, 3, 60)))


def begin(optimiser: AbstractOptimiser):
    model = Mlp(widths=(6, 5), activation=Tanh(), dropout=0.0)
    recipe = defaults.classification(model=model, batches=Fixed(size=20), optimiser=optimiser)
    return init(recipe, TRAIN, TRAIN, outputs=3, classes=3, key=jr.key(1))


run = eqx.filter_jit(lambda problem, state, updates: advance(problem, state, updates)[0])


@pytest.fixture(scope="module")
def watched():
    """Forty updates, looked at every third, with room for eight looks."""
    problem, state = begin(Watched(Adam(0.01), every=3, rows=8))
    return problem, state, run(problem, state, 40)


def test_it_is_a_part() -> None:
    check_part(Watched(Sgd(0.1), every=7))
    assert not uses_objective(Watched())  # updates keep the loop of an optimiser that asks for nothing


@pytest.mark.slow
def test_training_is_the_same_bit_for_bit(watched) -> None:
    problem, state = begin(Adam(0.01))
    alone = run(problem, state, 40)
    for one, two in zip(jax.tree.leaves(alone.parameters), jax.tree.leaves(watched[2].parameters), strict=True):
        np.testing.assert_array_equal(one, two)
    assert watched[0].recipe.optimiser.rate(watched[2].optimiser) == pytest.approx(0.01)


def test_a_full_record_keeps_every_second_look(watched) -> None:
    # Full at update 21 (0, 3, ..., 21): every sixth is left, and 24 is the next; no eight of them are there by 40.
    assert flow_of(watched[2].optimiser)["updates"] == [0, 6, 12, 18, 24, 30, 36]


def test_what_is_written_is_what_the_network_was(watched) -> None:
    problem, _, end = watched
    flow = flow_of(end.optimiser)
    assert json.loads(json.dumps(flow, allow_nan=False)) == flow
    kinds = {(group["layer"], group["kind"]): group for group in flow["groups"]}
    names = [group["layer"] for group in flow["groups"] if group["kind"] == "activation"]
    assert names == ["layers.0", "layers.1", "output"]  # in the order of the flow
    at_six = run(problem, begin(Watched(Adam(0.01), every=3, rows=8))[1], 6).parameters
    rows, _, _ = problem.recipe.batches.indices(jnp.asarray([6]), 60, key=problem.key)
    inputs = np.asarray(TRAIN.inputs)[np.asarray(rows[0])]
    sums = inputs @ np.asarray(at_six.layers[0].weight).T + np.asarray(at_six.layers[0].bias)
    expected = {"pre-activation": sums, "activation": np.tanh(sums)}
    for kind, values in expected.items():
        assert kinds["layers.0", kind]["mean"][1] == pytest.approx(values.mean(), rel=1e-4, abs=1e-6)
        assert kinds["layers.0", kind]["deviation"][1] == pytest.approx(values.std(), rel=1e-4)
        edges = kinds["layers.0", kind]["edges"][1]
        assert len(edges) == BINS + 1
        assert edges[0] == pytest.approx(values.min(), rel=1e-4)
    weights = np.asarray(at_six.layers[1].weight)
    assert kinds["layers.1.weight", "parameter"]["norm"][1] == pytest.approx(np.linalg.norm(weights), rel=1e-5)
    assert kinds["output.bias", "parameter gradient"]["norm"][1] > 0


@pytest.mark.slow
def test_it_is_found_within_others_and_lets_an_average_be_judged() -> None:
    optimiser = PolyakAverage(Watched(Sgd(0.1), every=2, rows=4))
    problem, state = begin(optimiser)
    end = run(problem, state, 5)
    assert flow_of(end.optimiser)["updates"] == [0, 2, 4]
    assert flow_of(begin(Sgd(0.1))[1].optimiser) == {}
    outside = Watched(PolyakAverage(Sgd(0.1)))
    average = state.parameters.output.weight + 1.0
    inner = outside.build().init(state.parameters)
    inner = eqx.tree_at(lambda one: one.inner.average.output.weight, inner, average)
    np.testing.assert_array_equal(outside.judged(state.parameters, inner).output.weight, average)


def test_within_a_group_it_is_refused() -> None:
    with pytest.raises(RequestError, match="Watched\\(Grouped"):
        begin(Grouped(Sgd(0.1), groups=(ParameterGroup("*.bias", Watched(Sgd(0.1))),)))


@pytest.mark.slow
def test_in_a_population_each_member_keeps_its_own() -> None:
    problem, state = begin(Watched(Sgd(0.1), every=4, rows=4))
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), eqx.filter(state, eqx.is_array))
    doubled = jax.tree.map(
        lambda leaf: leaf * jnp.asarray([1.0, 2.0]).reshape(-1, *[1] * (leaf.ndim - 1)), several.parameters
    )
    several = eqx.tree_at(lambda one: one.parameters, several, doubled)
    ends = eqx.filter_jit(jax.vmap(lambda one: advance(problem, one, 6)[0]))(several)
    flows = [flow_of(jax.tree.map(lambda leaf, n=n: leaf[n], ends.optimiser)) for n in range(2)]
    one, two = (next(g for g in flow["groups"] if g["kind"] == "parameter")["norm"] for flow in flows)
    assert flows[0]["updates"] == flows[1]["updates"] == [0, 4]
    assert two[0] == pytest.approx(2 * one[0], rel=1e-5)
    assert two[1] != pytest.approx(2 * one[1], rel=1e-5)
