"""SVG for the page: themed, lean, and the same every time."""

import re
import xml.etree.ElementTree as ET
from functools import partial

import matplotlib
import numpy as np
import pytest

from gradwise.evaluation.run_figure_data import Confusion, Residuals, learning_curves
from gradwise.reporting.blocks import Figure, Table
from gradwise.reporting.plots import run_plots
from gradwise.reporting.svg import picture


def figure(drawing, name="one", **changes):
    return Figure(name, "title", "words", drawing, Table("Numbers", ("a",), ()), **changes)


@pytest.fixture
def curves(classes_record):
    return figure(partial(run_plots.draw_learning_curves, learning_curves(classes_record)))


def test_colours_are_roles(curves):
    svg = picture(curves)
    assert {"var(--first)", "var(--second)", "var(--ink)", "var(--rule)"} <= set(re.findall(r"var\(--[\w-]+\)", svg))
    assert re.findall(r"#[0-9a-f]{6}\b", svg) == []


def test_it_is_well_formed_without_prologue_metadata_or_style(curves):
    svg = picture(curves)
    assert ET.fromstring(svg.replace("<svg", '<svg xmlns:h="h"', 1)).tag.endswith("svg")
    assert not re.search(r"<\?xml|<!DOCTYPE|<metadata|<style|font-family", svg)


def test_equal_figures_give_equal_text_whatever_the_users_settings(curves):
    first = picture(curves)
    with matplotlib.rc_context(
        {"svg.fonttype": "path", "font.size": 30, "xtick.labeltop": True, "legend.numpoints": 5}
    ):
        assert picture(curves) == first


def test_drawing_leaves_the_users_settings_alone(curves):
    before = dict(matplotlib.rcParams)
    picture(curves)
    assert dict(matplotlib.rcParams) == before


def test_two_figures_on_one_page_share_no_name(classes_record):
    drawing = partial(run_plots.draw_learning_curves, learning_curves(classes_record))
    ids = [set(re.findall(r' id="([^"]*)"', picture(figure(drawing, name)))) for name in ("one", "two")]
    assert ids[0]
    assert not ids[0] & ids[1]


def test_every_reference_leads_somewhere(curves):
    svg = picture(curves)
    used = set(re.findall(r'(?:url\(#|href="#)([\w.-]+)', svg))
    assert used == set(re.findall(r' id="([^"]*)"', svg))


def test_text_stays_text(curves):
    assert ">age, in examples seen</text>" in picture(curves)


def test_hostile_names_are_text_in_the_drawing():
    names = ("<script>alert(1)</script>", 'a" onload="x', "#0069a8", "]]>", "漢字🙂", "\u202e\x00")
    svg = picture(figure(partial(run_plots.draw_confusion, Confusion(names, np.ones((6, 6))))))
    root = ET.fromstring(svg.replace("<svg", '<svg xmlns:h="h"', 1))
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
        "svg", "g", "defs", "path", "use", "text", "clipPath", "rect", "image"
    }  # fmt: skip
    assert not any(name.startswith("on") for element in root.iter() for name in element.attrib)
    assert "#0069a8" in {element.text for element in root.iter()}


def test_a_thousand_dots_stay_small():
    x = np.linspace(0, 1, 1000)
    svg = picture(figure(partial(run_plots.draw_predicted, Residuals("y", x, x**2, 0.9))))
    assert svg.count("<use") >= 1000
    assert len(svg) < 60_000
