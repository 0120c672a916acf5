"""Figures of the flow: two looks of a check, many of a watched training, and what is damaged."""

import copy
import dataclasses
import math

from gradwise.records.evidence.check_evidence import FlowEvidence
from gradwise.records.evidence.recorded_flow import RecordedFlow
from gradwise.reporting.blocks import Figure, Prose
from gradwise.reporting.captioned_figures import signal_flow_figures
from gradwise.reporting.report import report
from gradwise.reporting.svg import picture
from tests.reporting.made_up import flow, group


def names(blocks):
    return [block.name for block in blocks if isinstance(block, Figure)]


def watched(looks=5):
    kinds = ("activation", "activation gradient", "parameter", "parameter gradient")
    groups = tuple(group(f"layers.{i}", kind, looks, 10.0**-i) for kind in kinds for i in range(3))
    return RecordedFlow(tuple(100 * i for i in range(looks)), groups)


def blocks_of(seen):
    if isinstance(seen, RecordedFlow):
        return tuple(signal_flow_figures.flow_blocks(seen.groups, seen.updates))
    return tuple(signal_flow_figures.flow_blocks(seen.groups, layers=seen.layers, maps=seen.maps))


def test_a_check_shows_layers_and_both_looks():
    blocks = blocks_of(flow())
    shown = names(blocks)
    assert shown[:3] == ["saturation", "gradient-sizes", "singular"]
    assert shown[3:5] == ["flow-pre-activation", "histograms-pre-activation"]
    assert len(shown) == len(set(shown)) == 9
    saturation, sizes, singular = (block for block in blocks if isinstance(block, Figure) and block.name in shown[:3])
    assert "Most in layers.0: 25.0\u202f% saturated" in saturation.description
    assert saturation.table.rows[1] == ("layers.1", "–", "0\u202f%")
    assert "the largest is 4 times the smallest" in sizes.description
    assert singular.table.rows == (("layers.0 → layers.1", "0.2", "0.6", "1"),)


def test_a_watched_training_is_drawn_against_its_updates():
    blocks = blocks_of(watched())
    (said,) = (block for block in blocks if isinstance(block, Prose))
    assert said.text == "Over training, 5 looks, the last at update 400:"
    assert "saturation" in names(blocks)
    assert "flow-parameter-gradient" in names(blocks)
    assert len(names(blocks)) == 2 + 2 * 4
    for block in blocks:
        if isinstance(block, Figure):
            assert picture(block).startswith("<svg")


def test_of_many_layers_an_even_choice_is_drawn_and_said():
    groups = [group(f"keep[{i}]", "activation", 2, 1.0 + i) for i in range(60)]
    strips, ridges = signal_flow_figures.flow_figures(groups)
    for figure in (strips, ridges):
        assert figure.description.endswith(" 24 of 60 are shown.")
        drawn = [row[0] for row in figure.table.rows]
        assert (len(drawn), drawn[0], drawn[-1]) == (24, "keep[0]", "keep[59]")


def test_nothing_saturated_is_said_in_words():
    seen = flow()
    blocks = blocks_of(
        dataclasses.replace(seen, layers=tuple(dataclasses.replace(one, saturated=0.0) for one in seen.layers))
    )
    assert blocks[0] == Prose("No unit is saturated or dead.")
    assert "saturation" not in names(blocks)


def test_a_run_that_was_watched_has_a_section(classes_record):
    record = copy.copy(classes_record)
    evidence = dataclasses.replace(record.evidence, flow=watched())
    object.__setattr__(record, "evidence", evidence)
    assert "Activations and gradients by layer" in report(record)
    assert "Activations and gradients by layer" not in report(classes_record)


def test_what_is_not_finite_is_not_drawn():
    lost = dataclasses.replace(group("layers.0", "parameter", 3), mean=(math.nan,) * 3, edges=((math.nan,) * 5,) * 3)
    assert blocks_of(RecordedFlow((0, 10, 20), (lost,))) == ()
    assert blocks_of(FlowEvidence()) == blocks_of(RecordedFlow()) == ()
