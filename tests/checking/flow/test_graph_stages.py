"""Which stage an equation belongs to, in networks small enough to know: layers, biases, penalties, loops, gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from gradwise.checking.flow.flow_graph import measure_graph
from gradwise.checking.flow.graph_stages import (
    backward_stages,
    fewer,
    forward_stages,
    in_order,
    live,
    owners,
    readers_of,
    stage_kind,
)
from gradwise.checking.flow.program_cost import count
from gradwise.checking.subject import Subject
from gradwise.tracing.program import trace

COUNT, WIDE, OUT = 11, 5, 3
BATCH = (np.linspace(-1, 1, COUNT * WIDE, dtype=np.float32).reshape(COUNT, WIDE), np.arange(COUNT) % OUT)
PARAMETERS = {"w1": jnp.ones((WIDE, 4)), "b1": jnp.ones(4), "w2": jnp.ones((4, 1)), "b2": jnp.ones(1)}
NAMES = tuple(sorted(PARAMETERS))


def cross_entropy(model, batch, key):
    x, y = batch
    return optax.softmax_cross_entropy_with_integer_labels(jax.vmap(model)(x), y).mean()


def penalised(p, batch, key=None):
    x, y = batch
    penalty = 1e-3 * jnp.sum(p["w1"] ** 2)
    outputs = jnp.tanh(jnp.sin(x) @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
    return jnp.mean((outputs[:, 0] - y) ** 2) + penalty


@pytest.fixture(scope="module")
def traced():
    return trace(penalised, PARAMETERS, BATCH, jr.key(0)).sites


@pytest.fixture(scope="module")
def stages(traced):
    return forward_stages(traced, NAMES)


def test_each_equation_of_a_loss_has_its_stage(traced, stages):
    of = {(site.primitive, stage) for site, stage in zip(traced, stages, strict=True)}
    assert {("sin", "inputs"), ("dot_general", "w1"), ("tanh", "w1"), ("dot_general", "w2")} <= of
    assert [stage for site, stage in zip(traced, stages, strict=True) if site.primitive == "tanh"] == ["w1"]
    assert set(stages) == {"inputs", "w1", "w2", "penalty", "loss"}
    assert stages[-1] == "loss"
    assert in_order(traced, stages) == ["inputs", "w1", "w2", "loss", "penalty"]
    assert owners(traced, stages) == {"w1": "w1", "b1": "w1", "w2": "w2", "b2": "w2"}


def test_readers_and_what_a_result_needs(traced):
    readers = readers_of(traced)
    for site in traced:
        assert all(site.number in readers[read] for read in site.reads)
        assert sum(numbers.count(site.number) for numbers in readers) == len(site.reads)
    sine = next(site for site in traced if site.primitive == "sin")
    assert live(traced, [sine.number, None]) == {sine.number, *sine.reads}
    whole = live(traced, [traced[-1].number])
    assert sine.number in whole
    assert live(traced, [None]) == set()


def test_the_gradient_belongs_to_the_layers_it_leads_to(traced, stages):
    arguments = (PARAMETERS, BATCH, jr.key(0))
    both = trace(jax.value_and_grad(penalised), *arguments)
    _, results = count(both, *arguments)
    order = in_order(traced, stages)
    found = backward_stages(both.sites, results[0], results[1:], owners(traced, stages), NAMES, order)
    assert set(found) == set(range(results[0] + 1, len(both.sites)))
    products = [found[number] for number in sorted(found) if both.sites[number].primitive == "dot_general"]
    # From the top: two products for the second layer, its weights and what lies below; one for the first.
    assert sorted(products) == ["w1", "w2", "w2"]
    assert products[-1] == "w1"
    ends = dict(zip(NAMES, results[1:], strict=True))
    assert {name: found[number] for name, number in ends.items() if number in found}["w2"] == "w2"


def test_stages_are_made_fewer_by_their_names_and_then_by_neighbours():
    assert fewer(["a.x", "a.y", "b", "loss"], 3) == ["a.x", "a.y", "b", "loss"]  # what is around does not count
    assert fewer(["inputs", "a.x", "a.y", "b", "loss"], 2) == ["inputs", "a", "a", "b", "loss"]
    assert fewer(["a", "b", "c", "d", "e", "loss"], 3) == ["a …", "a …", "c …", "c …", "e", "loss"]


def test_a_stage_is_drawn_by_what_it_is():
    told = [stage_kind(name, last) for name, last in (("inputs", False), ("a", False), ("a", True), ("penalty", True))]
    assert told == ["input", "internal", "output", "loss"]


def test_a_bias_of_its_own_name_belongs_to_its_layer_and_a_penalty_stands_aside():
    parameters = {"w1": jnp.ones((WIDE, 4)), "b1": jnp.ones(4), "w2": jnp.ones((4, 1)), "b2": jnp.ones(1)}

    def loss(p, batch):
        x, y = batch
        penalty = 1e-3 * jnp.sum(p["w1"] ** 2)
        outputs = jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
        return jnp.mean((outputs[:, 0] - y) ** 2) + penalty

    measured = measure_graph(Subject.of(loss, parameters, BATCH), key=jr.key(1), compile=False)
    assert [stage.name for stage in measured.stages] == ["w1", "w2", "penalty", "loss"]
    first, last = measured.stages[:2]
    assert (first.products, first.backward_products) == (2 * COUNT * WIDE * 4, 2 * COUNT * WIDE * 4)
    assert (last.products, last.backward_products) == (2 * COUNT * 4, 2 * 2 * COUNT * 4)


def test_layers_stand_in_the_order_of_the_batch_and_loops_count_each_step():
    class Recurrent(eqx.Module):
        cell: eqx.nn.GRUCell
        embedding: eqx.nn.Embedding
        top: eqx.nn.Linear

        def __call__(self, tokens):
            step = lambda state, value: (self.cell(value, state), None)  # noqa: E731
            return self.top(jax.lax.scan(step, jnp.zeros(6), jax.vmap(self.embedding)(tokens))[0])

    keys = jr.split(jr.key(0), 3)
    parts = (
        eqx.nn.GRUCell(5, 6, key=keys[0]),
        eqx.nn.Embedding(20, 5, key=keys[1]),
        eqx.nn.Linear(6, OUT, key=keys[2]),
    )
    batch = (np.ones((COUNT, 9), np.int32), BATCH[1])
    measured = measure_graph(Subject.of(cross_entropy, Recurrent(*parts), batch), key=jr.key(1), compile=False)
    assert [stage.name for stage in measured.stages if stage.kind != "input"] == ["embedding", "cell", "top", "loss"]
    cell = next(stage for stage in measured.stages if stage.name == "cell")
    assert cell.products == 9 * COUNT * 2 * (3 * 6 * 5 + 3 * 6 * 6)
    assert cell.backward_products >= 2 * cell.products - 9 * COUNT * 2 * 3 * 6 * 5
