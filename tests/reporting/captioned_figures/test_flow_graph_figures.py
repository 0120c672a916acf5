"""The flow graph's figure and tables: the numbers that stand there, and what is left out."""

import dataclasses

from gradwise.records.evidence.check_evidence import Compiled
from gradwise.reporting.blocks import Figure
from gradwise.reporting.captioned_figures.flow_graph_figures import graph_blocks
from gradwise.reporting.svg import picture
from tests.reporting.made_up import graph


def test_costs_and_compilation_are_told():
    figure, stages, compiled = graph_blocks(graph())
    assert isinstance(figure, Figure)
    assert "1.55k operations, the gradient 2.14k more, 1.38 times as much" in figure.description
    assert stages.rows[0] == ("layers.0", "1k", "1.1k", "4kB", "–")
    assert dict(compiled.rows)["both in one program"] == "60"
    assert dict(compiled.rows)["of these, used by nothing"] == "3"
    assert dict(compiled.rows)["working memory"] == "2.05kB"
    drawn = picture(figure)
    assert "layers.1" in drawn
    assert "var(--third)" in drawn  # inputs


def test_a_backend_that_tells_nothing_leaves_the_equations():
    _, _, counted = graph_blocks(dataclasses.replace(graph(), compiled=Compiled()))
    assert [name for name, _ in counted.rows][-1] == "of these, computed twice"


def test_a_graph_without_boxes_is_left_out():
    assert tuple(graph_blocks(dataclasses.replace(graph(), boxes=()))) == ()
