"""The picture of Algorithm 1: its points are the scores of the trainings."""

import dataclasses
import math
from typing import Any

import numpy as np

from gradwise.records.evidence.fit_evidence import LayerTraining, LayerwiseChoice, LayerwiseEvidence
from gradwise.records.score_scale import ScoreScale
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
    (figure,) = layerwise_figures(evidence(), ScoreScale())
    assert "5 trainings" in figure.description
    assert figure.table.rows[0][:3] == ("1 layer", "2", "1")
    assert figure.table.rows[-1][0] == "fine-tuned"
    ax = levels([("1 layer", [0.2, 0.1], [0.1]), ("fine-tuned", [0.05], [0.05])], scale=ScoreScale())
    drawn = [np.asarray(points.get_offsets())[:, 1].tolist() for points in ax.collections]
    assert drawn == [[0.1, 0.2], [0.1], [0.05], [0.05]]
    assert "<svg" in picture(figure)


def test_the_units_of_the_best_stand_beside_each_step() -> None:
    (figure,) = layerwise_figures(evidence(), ScoreScale())
    assert [row[-1] for row in figure.table.rows] == ["8", "8 · 4", "8 · 4"]


def test_a_choice_that_was_corrected_is_told_on_the_scale_of_the_scores() -> None:
    choice = LayerwiseChoice(0.05, 3, corrected=0.0625)
    for scale, fresh in ((ScoreScale(), "6.2\u202f%"), (ScoreScale("squared", unit=10.0), "2.5")):
        (figure,) = layerwise_figures(evidence(choice=choice), scale)
        assert f"As the best of 3 fine-tunings this is optimistic: expect about {fresh} on" in figure.description


def test_a_run_without_trainings_draws_nothing() -> None:
    assert tuple(layerwise_figures(evidence(trainings=()), ScoreScale("loss"))) == ()
