"""Figures of the flow: two looks of a check, many of a watched training, and what is damaged."""

import copy
import dataclasses

import pytest

from gradwise.records.evidence.recorded_flow import RecordedFlow
from gradwise.records.plain_values import from_values
from gradwise.reporting.blocks import Figure, Prose
from gradwise.reporting.captioned_figures import signal_flow_figures
from gradwise.reporting.report import report
from gradwise.reporting.svg import picture
from tests.reporting.made_up import flow, group


def names(blocks):
    return [block.name for block in blocks if isinstance(block, Figure)]


def watched(looks=5):
    kinds = ("activation", "activation gradient", "parameter", "parameter gradient")
    groups = [group(f"layers.{i}", kind, looks, 10.0**-i) for kind in kinds for i in range(3)]
    return {"updates": [100 * i for i in range(looks)], "groups": groups}


def test_a_check_shows_layers_and_both_looks():
    blocks = tuple(signal_flow_figures.flow_blocks(flow()))
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
    blocks = tuple(signal_flow_figures.flow_blocks(watched()))
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
    strips, ridges = signal_flow_figures.flow_figures({"groups": groups})
    for figure in (strips, ridges):
        assert figure.description.endswith(" 24 of 60 are shown.")
        drawn = [row[0] for row in figure.table.rows]
        assert (len(drawn), drawn[0], drawn[-1]) == (24, "keep[0]", "keep[59]")


def test_nothing_saturated_is_said_in_words():
    plain = flow()
    for layer in plain["layers"]:
        layer["saturated"] = [0.0, 0.0]
    blocks = tuple(signal_flow_figures.flow_blocks(plain))
    assert blocks[0] == Prose("No unit is saturated or dead.")
    assert "saturation" not in names(blocks)


def test_a_run_that_was_watched_has_a_section(classes_record):
    record = copy.copy(classes_record)
    evidence = dataclasses.replace(record.evidence, flow=from_values(RecordedFlow, watched()))
    object.__setattr__(record, "evidence", evidence)
    assert "Activations and gradients by layer" in report(record)
    assert "Activations and gradients by layer" not in report(classes_record)


@pytest.mark.parametrize("change", [None, "text", [], {}, [None], [[1.0], [2.0, 3.0]]])
def test_what_is_damaged_is_not_drawn(change):
    for make in (flow, watched):
        for key in make():
            plain = make()
            plain[key] = change
            for block in signal_flow_figures.flow_blocks(plain):
                if isinstance(block, Figure):
                    block.draw()
        for key in make()["groups"][0]:
            plain = make()
            plain["groups"][0][key] = change
            for block in signal_flow_figures.flow_blocks(plain):
                if isinstance(block, Figure):
                    assert block.height > 0
    assert tuple(signal_flow_figures.flow_blocks({})) == ()
