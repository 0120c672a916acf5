"""The picture of Algorithm 1: its points are the scores of the trainings."""

import dataclasses
import math
from typing import Any

import numpy as np

from gradwise.records.evidence.fit_evidence import LayerTraining, LayerwiseChoice, LayerwiseEvidence
from gradwise.reporting.captioned_figures.layerwise_figures import layerwise_figures, levels
from gradwise.reporting.svg import picture


def evidence(**changes: Any) -> LayerwiseEvidence:
    scored = [(1, 0.2), (1, 0.1), (1, math.nan), (2, 0.08), (2, 0.12), (3, 0.05)]
    found = LayerwiseEvidence(
        trainings=tuple(
            LayerTraining(k, level, (), score, "finished", 1.0, 10) for k, (level, score) in enumerate(scored)
        ),
        kept=(),
        scores=((0.1,), (0.08,), (0.05,)),
        widths=(((8,),), ((8, 4),), ((8, 4),)),
        probes=(),
        choice=LayerwiseChoice(0.05, 1),
    )
    return dataclasses.replace(found, **changes)


def test_every_sound_training_is_a_point_and_the_kept_ones_are_filled() -> None:
    (figure,) = layerwise_figures(evidence(), percent=True)
    assert "5 trainings" in figure.description
    assert figure.table.rows[0][:3] == ("1 layer", "2", "1")
    assert figure.table.rows[-1][0] == "fine-tuned"
    ax = levels([("1 layer", [0.2, 0.1], [0.1]), ("fine-tuned", [0.05], [0.05])], percent=True)
    drawn = [np.asarray(points.get_offsets())[:, 1].tolist() for points in ax.collections]
    assert drawn == [[0.1, 0.2], [0.1], [0.05], [0.05]]
    assert "<svg" in picture(figure)


def test_the_units_of_the_best_stand_beside_each_step() -> None:
    (figure,) = layerwise_figures(evidence(), percent=True)
    assert [row[-1] for row in figure.table.rows] == ["8", "8 · 4", "8 · 4"]


def test_a_choice_that_was_corrected_is_told_in_per_cent() -> None:
    choice = LayerwiseChoice(0.05, 3, corrected=0.06)
    for percent in (True, False):
        (figure,) = layerwise_figures(evidence(choice=choice), percent=percent)
        assert ("As the best of 3 fine-tunings this is optimistic" in figure.description) == percent


def test_a_run_without_trainings_draws_nothing() -> None:
    assert tuple(layerwise_figures(evidence(trainings=()), percent=False)) == ()
