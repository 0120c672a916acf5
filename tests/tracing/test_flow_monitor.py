"""The monitor of training: it changes nothing, what it writes down is what the network was, and it forgets evenly."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from sklearn.datasets import load_iris

from gradwise import defaults
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Fixed
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.records.evidence.recorded_flow import RecordedFlow
from gradwise.records.plain_values import from_values, to_values
from gradwise.specs.contracts import AbstractOptimiser
from gradwise.specs.dataset import Classes, Dataset
from gradwise.specs.serialisation import to_json
from gradwise.testing.contracts import check_part
from gradwise.tracing.flow_monitor import FlowMonitor, flow_of
from gradwise.tracing.signal_flow import BINS
from gradwise.training.interval import advance
from gradwise.training.loop import RunOptions
from gradwise.training.state import init
from gradwise.training.stopping import Off
from gradwise.training.train import train

RANDOM = np.random.default_rng(0)
TRAIN = Examples(jnp.asarray(RANDOM.normal(size=(60, 4)), jnp.float32), jnp.asarray(RANDOM.integers(0, 3, 60)))


def begin(monitor: FlowMonitor | None, optimiser: AbstractOptimiser = Adam(0.01)):
    model = Mlp(widths=(6, 5), activation=Tanh(), dropout=0.0)
    recipe = defaults.classification(model=model, batches=Fixed(size=20), optimiser=optimiser)
    return init(recipe, TRAIN, TRAIN, outputs=3, classes=3, monitor=monitor, key=jr.key(1))


run = eqx.filter_jit(lambda problem, state, updates: advance(problem, state, updates)[0])


@pytest.fixture(scope="module")
def watched():
    """Forty updates, looked at every third, with room for eight looks."""
    problem, state = begin(FlowMonitor(every=3, rows=8))
    return problem, state, run(problem, state, 40)


def test_it_is_a_part() -> None:
    check_part(FlowMonitor(every=7))


@pytest.mark.slow
def test_training_is_the_same_bit_for_bit(watched) -> None:
    alone = run(*begin(None), 40)
    assert alone.looks is None
    for name in ("parameters", "optimiser", "update"):
        for one, two in zip(*(jax.tree.leaves(getattr(end, name)) for end in (alone, watched[2])), strict=True):
            np.testing.assert_array_equal(one, two)


def test_a_full_record_keeps_every_second_look(watched) -> None:
    # Full at update 21 (0, 3, ..., 21): every sixth is left, and 24 is the next; no eight of them are there by 40.
    assert flow_of(watched[2].looks).updates == (0, 6, 12, 18, 24, 30, 36)


def test_what_is_written_is_what_the_network_was(watched) -> None:
    problem, _, end = watched
    flow = flow_of(end.looks)
    again = from_values(RecordedFlow, json.loads(json.dumps(to_values(flow), allow_nan=False)))
    assert to_values(again) == to_values(flow)
    kinds = {(group.layer, group.kind): group for group in flow.groups}
    names = [group.layer for group in flow.groups if group.kind == "activation"]
    assert names == ["layers.0", "layers.1", "output"]  # in the order of the flow
    at_six = run(problem, begin(FlowMonitor(every=3, rows=8))[1], 6).parameters
    rows, _, _ = problem.recipe.batches.indices(jnp.asarray([6]), 60, key=problem.key)
    inputs = np.asarray(TRAIN.inputs)[np.asarray(rows[0])]
    sums = inputs @ np.asarray(at_six.layers[0].weight).T + np.asarray(at_six.layers[0].bias)
    expected = {"pre-activation": sums, "activation": np.tanh(sums)}
    for kind, values in expected.items():
        assert kinds["layers.0", kind].mean[1] == pytest.approx(values.mean(), rel=1e-4, abs=1e-6)
        assert kinds["layers.0", kind].deviation[1] == pytest.approx(values.std(), rel=1e-4)
        edges = kinds["layers.0", kind].edges[1]
        assert len(edges) == BINS + 1
        assert edges[0] == pytest.approx(values.min(), rel=1e-4)
    weights = np.asarray(at_six.layers[1].weight)
    assert kinds["layers.1.weight", "parameter"].norm[1] == pytest.approx(np.linalg.norm(weights), rel=1e-5)
    assert kinds["output.bias", "parameter gradient"].norm[1] > 0


def test_without_a_monitor_there_is_nothing_to_tell() -> None:
    assert flow_of(begin(None)[1].looks) == RecordedFlow()


def test_it_reaches_the_record_survives_a_checkpoint_and_leaves_the_recipe_alone(tmp_path) -> None:
    inputs, targets = load_iris(return_X_y=True)
    dataset = Dataset(inputs, targets, Classes(np.arange(3)))
    recipe = defaults.classification(model=Mlp(widths=(5,)), stopping=Off(epochs=6))
    monitor = FlowMonitor(every=2, rows=4)
    seen, plain = (
        train(recipe, dataset, key=jr.key(0), options=RunOptions(folder=folder, monitor=watcher))
        for folder, watcher in ((tmp_path, monitor), (None, None))
    )
    assert to_json(seen.recipe) == to_json(plain.recipe)
    assert seen.metrics == plain.metrics
    assert plain.evidence.flow == RecordedFlow()
    flow = seen.evidence.flow
    assert flow.updates[:2] == (0, flow.updates[1])
    again = train(recipe, dataset, key=jr.key(0), options=RunOptions(folder=tmp_path, resume=True, monitor=monitor))
    assert to_values(again.evidence.flow) == to_values(flow)


@pytest.mark.slow
def test_in_a_population_each_member_keeps_its_own() -> None:
    problem, state = begin(FlowMonitor(every=4, rows=4), Sgd(0.1))
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), eqx.filter(state, eqx.is_array))
    doubled = jax.tree.map(
        lambda leaf: leaf * jnp.asarray([1.0, 2.0]).reshape(-1, *[1] * (leaf.ndim - 1)), several.parameters
    )
    several = eqx.tree_at(lambda one: one.parameters, several, doubled)
    ends = eqx.filter_jit(jax.vmap(lambda one: advance(problem, one, 6)[0]))(several)
    flows = [flow_of(jax.tree.map(lambda leaf, n=n: leaf[n], ends.looks)) for n in range(2)]
    one, two = (next(g for g in flow.groups if g.kind == "parameter").norm for flow in flows)
    assert flows[0].updates == flows[1].updates == (0, 4)
    assert two[0] == pytest.approx(2 * one[0], rel=1e-5)
    assert two[1] != pytest.approx(2 * one[1], rel=1e-5)
