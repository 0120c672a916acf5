"""The drawn flow graph: where the boxes stand, what the arrows join, what the boxes say."""

import itertools

from gradwise.records.evidence.check_evidence import Box, Compiled, Counts, GraphMeasured, Stage
from gradwise.reporting.plots import flow_graph_plots
from gradwise.reporting.plots.flow_graph_plots import COLUMNS, draw_flow_graph, layout


def graph_of(layers, penalty=False):
    """A chain of so many layers: a product and a bend each, with parameters; a loss; perhaps a penalty."""
    names = [f"layers.{i}" for i in range(layers)]
    boxes = [Box("inputs", "input", "inputs"), Box("targets", "input", "inputs")]
    edges, before = [], 0
    for name in names:
        kind = "output" if name == names[-1] else "internal"
        parameters = len(boxes)
        boxes.append(Box("", "parameter", name, (42,), sites=2))
        boxes.append(Box("dot_general", "internal", name, (8, 4), 90.0, sites=1))
        boxes.append(Box("add, tanh", kind, name, (8, 4), 10.0, sites=2))
        edges += [(before, parameters + 1), (parameters, parameters + 1), (parameters + 1, parameters + 2)]
        before = parameters + 2
    boxes.append(Box("sub, exp, log, …", "loss", "loss", (), 5.0, sites=9))
    edges += [(before, len(boxes) - 1), (1, len(boxes) - 1)]
    stages = [Stage(n, "internal", operations=100.0, backward_operations=200.0, backward_sites=9) for n in names]
    if penalty:
        boxes.append(Box("integer_pow", "loss", "penalty", (), 3.0, sites=2))
        edges += [(len(boxes) - 1, len(boxes) - 2), (2, len(boxes) - 1)]
        stages.append(Stage("penalty", "loss"))
    stages.append(Stage("loss", "loss", backward_operations=5.0, backward_sites=3))
    last = len(stages) - 1
    back = [(last, layers - 1), *((i, i - 1) for i in range(layers - 1, 0, -1))]
    return GraphMeasured(tuple(stages), tuple(boxes), tuple(edges), tuple(back), Counts(0, 0, 0, 0, 0), Compiled())


def overlap(a, b):
    return abs(a.x - b.x) < flow_graph_plots._WIDE and abs(a.y - b.y) < flow_graph_plots._TALL


def test_layers_run_from_left_to_right_and_the_gradient_back():
    plan = layout(graph_of(3))
    columns = {title: x for x, _, title in plan.titles}
    assert list(columns) == ["inputs", "layers.0", "layers.1", "layers.2", "loss"]
    assert list(columns.values()) == sorted(columns.values())
    assert all(plan.nodes[b].column >= plan.nodes[a].column for a, b in plan.edges)
    assert [plan.nodes[a].column - plan.nodes[b].column for a, b in plan.back] == [1, 1, 1]
    assert all(plan.nodes[a].gradient and plan.nodes[b].gradient for a, b in plan.back)


def test_no_two_boxes_overlap_and_all_are_inside():
    for layers, penalty in ((1, False), (3, True), (20, True)):
        plan = layout(graph_of(layers, penalty))
        assert not any(overlap(a, b) for a, b in itertools.combinations(plan.nodes, 2))
        assert all(n.x >= 0 and n.x + flow_graph_plots._WIDE <= plan.width for n in plan.nodes)
        assert all(n.y >= 0 and n.y + flow_graph_plots._TALL <= plan.height for n in plan.nodes)


def test_many_layers_go_on_in_the_next_row():
    plan = layout(graph_of(20))
    assert max(node.column for node in plan.nodes) == COLUMNS - 1
    assert max(node.row for node in plan.nodes) == (20 + 2 - 1) // COLUMNS
    assert plan.width == layout(graph_of(COLUMNS)).width


def test_a_penalty_is_a_part_of_the_loss():
    plan = layout(graph_of(2, penalty=True))
    assert [title for _, _, title in plan.titles] == ["inputs", "layers.0", "layers.1", "loss"]
    (penalty,) = (node for node in plan.nodes if node.title == "penalty")
    (loss,) = (node for node in plan.nodes if node.title.startswith("sub"))
    assert (penalty.column, penalty.y < loss.y) == (loss.column, True)
    into = [plan.nodes[a].kind for a, b in plan.edges if plan.nodes[b] is penalty]
    assert into == []  # every parameter may be penalised: not drawn


def test_boxes_say_what_they_cost():
    graph = graph_of(2)
    plan = layout(graph)
    products = [node for node in plan.nodes if node.title == "dot_general"]
    assert {node.detail for node in products} == {"8 × 4 · 90 ops"}
    assert {node.share for node in products} == {90.0 / 605.0}
    assert next(n for n in plan.nodes if n.kind == "parameter").detail == "42 numbers"
    ax = draw_flow_graph(plan)
    said = [text.get_text() for text in ax.texts]
    assert said.count("gradient") == 3
    assert "sub, exp, log, …" in said
    assert flow_graph_plots._fit("reduce_sum, select_n, log", 18) == "reduce_sum …"
    assert "layers.1" in said


def test_a_graph_without_boxes_is_drawn_empty():
    plan = layout(GraphMeasured((), (), (), (), Counts(0, 0, 0, 0, 0), Compiled()))
    assert plan.nodes == ()
    draw_flow_graph(plan)
