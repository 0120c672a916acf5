"""Figures of features made from evidence, and the page that shows them."""

import dataclasses
import math

import numpy as np
import pytest

from gradwise.records.evidence.fit_evidence import (
    FeatureEvidence,
    Filters,
    FitEvidence,
    PretrainedLayer,
    Reconstructions,
    Spectrum,
    UnitActivity,
)
from gradwise.reporting.captioned_figures import feature_figures
from gradwise.reporting.report import report
from gradwise.reporting.svg import picture
from gradwise.training.final_measurement import packed

DRAW = np.random.default_rng(0)


def features_of(count=12, image=(8, 8), names=()):
    """Evidence as `gradwise.training.final_measurement` gathers it."""
    width = int(np.prod(image)) if image else len(names)
    values = DRAW.uniform(-1, 1, (count, width))
    given = DRAW.uniform(size=(6, width))
    return FeatureEvidence(
        width=width,
        units=UnitActivity(2 * count, dead=3, mean=0.25, histogram=(20, 4), edges=(0.0, 0.4, 0.8)),
        spectrum=Spectrum((0.6, 0.3, 0.1), 1 / 0.46),
        image=tuple(image),
        names=tuple(names),
        filters=Filters(tuple(range(count)), (1.0,) * count, 2 * count, packed(values, -1.0, 1.0)),
        reconstructions=Reconstructions(
            count=6,
            low=0.0,
            high=1.0,
            given=packed(given, 0.0, 1.0),
            made=packed(given, 0.0, 1.0),
            kept=tuple(round(0.1 + 0.8 * i / width, 4) for i in range(width)),
            kept_of_all=0.5,
        ),
    )


def names(figures):
    return [figure.name for figure in figures]


def test_bytes_come_back_as_numbers():
    values = DRAW.uniform(-1, 1, (5, 7))
    assert feature_figures.unpacked(packed(values, -1.0, 1.0), 7, -1.0, 1.0) == pytest.approx(
        values, abs=1 / 255 + 1e-9
    )


@pytest.mark.parametrize("text", ["%%%", "AAAA", ""])
def test_damaged_bytes_draw_nothing(text):
    """A result file may have passed through other hands: what cannot be read is left out, the rest is shown."""
    features = features_of()
    features = dataclasses.replace(features, filters=dataclasses.replace(features.filters, bytes=text))
    assert names(feature_figures.feature_figures(features)) == ["reconstructions", "activity", "spectrum"]


def test_what_was_not_measured_is_not_drawn():
    bare = FeatureEvidence(64, UnitActivity(24))
    assert names(feature_figures.feature_figures(bare)) == []
    assert names(feature_figures.feature_figures(None)) == []


def test_images_are_tiled_and_told():
    filters, reconstructions, activity, spectrum = feature_figures.feature_figures(features_of())
    assert filters.description.startswith("The 12 with the largest norms of 24, ")
    assert "each with its reconstruction below. The code explains 50.0\u202f% of" in reconstructions.description
    assert activity.description == "Of 24 units 3 are never active (dead). Their mean activity is 0.25."
    assert spectrum.description.startswith("The codes vary as if in 2.17 directions")
    assert "half of the variance is in the first." in spectrum.description
    for figure in (filters, reconstructions):
        assert 0.8 < figure.width / figure.height < 3
        assert "<image" in picture(figure)


def test_a_table_is_a_map_of_units_by_columns():
    columns = ("age", "income", "<b>zip</b>")
    filters, kept, *_ = feature_figures.feature_figures(features_of(image=(), names=columns))
    svg = picture(filters)
    assert "income" in svg
    assert "<b>" not in svg
    assert kept.description.startswith("Least of age: 10.0\u202f%.")
    assert [row[0] for row in kept.table.rows] == list(columns)


def test_many_columns_stay_on_the_page():
    many = [f"column {i}" for i in range(150)]
    filters, kept, *_ = feature_figures.feature_figures(features_of(count=40, image=(), names=many))
    assert (filters.wide, filters.width <= 760) == (True, True)
    assert "The first 48 of 150 inputs." in filters.description
    assert "The 12 worst and best explained of 150 are shown." in kept.description
    assert filters.description.startswith("The 24 with the largest norms of 80")


def with_layers(record):
    first = PretrainedLayer(
        layer=1,
        learner="rbm",
        units=24,
        metric="denoising_error",
        valid=2.0,
        outcome="ended by patience",
        seconds=61.0,
        best_age=200,
        age=(100, 200, 300),
        curve=(3.0, 2.0, math.nan),
        features=features_of(),
        rows=1200,
    )
    layers = (first, dataclasses.replace(first, layer=2, features=None, rows=0))
    return dataclasses.replace(record, evidence=dataclasses.replace(record.evidence, layers=layers))


def test_layers_have_curves_and_a_line_each(classes_record):
    record = with_layers(classes_record)
    figures = list(feature_figures.pretrained_layer_figures(record))
    assert names(figures) == ["filters", "reconstructions", "layer-1", "layer-2"]
    assert figures[2].description.startswith(
        "Validation denoising error went from 3 to 2. Of 24 units 3 are never active"
    )
    table = feature_figures.layer_table(record)
    assert [row[:5] for row in table.rows] == [
        ("1", "rbm", "24", "1,200", "denoising error 2"),
        ("2", "rbm", "24", "–", "denoising error 2"),  # of a record from before rows were counted
    ]
    assert table.rows[0][7] == "1 min 1 s"
    assert feature_figures.layer_table(classes_record) is None


def test_the_page_shows_pictures_before_numbers(classes_record):
    page = report(with_layers(classes_record))
    assert page.index('id="pretraining"') < page.index('id="numbers"') < page.index('id="findings"')
    learned = dataclasses.replace(
        classes_record,
        task="inputs",
        metric="denoising_error",
        metrics={part: {"denoising_error": 3.0} for part in ("train", "valid", "test")},
        test_interval=(2.0, 4.0),
        evidence=FitEvidence(features=features_of()),
    )
    page = report(learned)
    assert page.index('id="features"') < page.index('id="curves"') < page.index('id="numbers"')
    assert "Test denoising error 3" in page
    assert "Denoising error during training" in page
