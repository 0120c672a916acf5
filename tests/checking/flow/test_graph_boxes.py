"""What is drawn: products alone, the rest of a stage together, few boxes however deep the network."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.checking.flow.flow_graph import measure_graph
from gradwise.checking.flow.graph_boxes import MOST_IN_STAGE, boxes_of
from gradwise.checking.flow.graph_stages import forward_stages
from gradwise.checking.flow.program_cost import count
from gradwise.checking.subject import Subject
from gradwise.tracing.program import trace

PARAMETERS = {"b": jnp.ones(4), "v": jnp.ones((4, 3)), "w": jnp.ones((5, 4))}
SIZES = {"b": 4, "v": 12, "w": 20}
BATCH = (np.ones((7, 5), np.float32), np.zeros((7, 3), np.float32))


def drawn(loss):
    arguments = (PARAMETERS, BATCH, jr.key(0))
    program = trace(loss, *arguments)
    counting, _ = count(program, *arguments)
    return boxes_of(program.sites, forward_stages(program.sites, tuple(PARAMETERS)), counting, SIZES)


def squared(p, batch, key):
    return jnp.mean((jnp.tanh(batch[0] @ p["w"] + p["b"]) @ p["v"] - batch[1]) ** 2)


def test_each_product_is_a_box_and_what_bends_after_it_another():
    boxes, edges = drawn(squared)
    told = [(box.stage, box.kind, box.name) for box in boxes[:3]]
    assert told == [("w", "internal", "dot_general"), ("w", "internal", "add, tanh"), ("v", "output", "dot_general")]
    assert (boxes[0].operations, boxes[0].shape) == (2 * 7 * 5 * 4, (7, 4))
    assert (boxes[2].operations, boxes[2].shape) == (2 * 7 * 4 * 3, (7, 3))
    given = {(box.stage, box.kind, box.name): (box.sites, box.shape) for box in boxes if box.kind == "parameter"}
    assert given == {("w", "parameter", ""): (2, (24,)), ("v", "parameter", ""): (1, (12,))}
    inputs = [number for number, box in enumerate(boxes) if box.name in ("inputs", "targets")]
    assert [boxes[number].name for number in inputs] == ["inputs", "targets"]
    assert {(0, 1), (1, 2), (inputs[0], 0)} <= set(edges)
    assert all(one != two for one, two in edges)


@pytest.mark.parametrize("times", [1, 6])
def test_a_stage_of_many_products_has_few_boxes_and_none_is_lost(times):
    def loss(p, batch, key):
        hidden = batch[0] @ p["w"]
        for _ in range(times):
            hidden = jnp.tanh(hidden @ (p["w"].T @ p["w"]))
        return jnp.mean((hidden @ p["v"] - batch[1]) ** 2)

    boxes, _ = drawn(loss)
    mine = [box for box in boxes if box.stage == "w" and box.kind != "parameter"]
    assert len(mine) <= MOST_IN_STAGE
    products = 2 * 7 * 5 * 4 + times * (2 * 7 * 4 * 4 + 2 * 4 * 5 * 4)
    assert sum(box.operations for box in mine) == pytest.approx(products + times * 7 * 4, rel=0.2)
    assert sum(box.operations for box in mine) >= products


def test_a_deep_net_is_drawn_with_few_boxes():
    parameters = [jnp.full((4, 4), 0.1) for _ in range(70)]

    def loss(weights, batch):
        hidden = batch
        for weight in weights:
            hidden = jnp.tanh(hidden @ weight)
        return jnp.mean(hidden**2)

    measured = measure_graph(Subject.of(loss, parameters, np.ones((3, 4), np.float32)), key=jr.key(1), compile=False)
    assert sum(box.kind != "parameter" for box in measured.boxes) <= 90
    assert len(measured.stages) <= 25
    assert sum(stage.products for stage in measured.stages) == 70 * 2 * 3 * 16
    assert sum(stage.backward_products for stage in measured.stages) == (2 * 70 - 1) * 2 * 3 * 16
