"""The picture of Algorithm 1: its points are the scores of the trainings."""

import numpy as np

from gradwise.reporting.captioned_figures.layerwise_figures import layerwise_figures, levels
from gradwise.reporting.svg import picture

PLAIN = {
    "trainings": [
        {"level": 1, "score": 0.2},
        {"level": 1, "score": 0.1},
        {"level": 1, "score": None},
        {"level": 2, "score": 0.08},
        {"level": 2, "score": 0.12},
        {"level": 3, "score": 0.05},
    ],
    "scores": [[0.1], [0.08], [0.05]],
}


def test_every_sound_training_is_a_point_and_the_kept_ones_are_filled() -> None:
    (figure,) = layerwise_figures(PLAIN, percent=True)
    assert "5 trainings" in figure.description
    assert figure.table.rows[0][:3] == ("1 layer", "2", "1")
    assert figure.table.rows[-1][0] == "fine-tuned"
    ax = levels([("1 layer", [0.2, 0.1], [0.1]), ("fine-tuned", [0.05], [0.05])], percent=True)
    drawn = [np.asarray(points.get_offsets())[:, 1].tolist() for points in ax.collections]
    assert drawn == [[0.1, 0.2], [0.1], [0.05], [0.05]]
    assert "<svg" in picture(figure)


def test_the_units_of_the_best_stand_beside_each_step() -> None:
    (figure,) = layerwise_figures({**PLAIN, "widths": [[[8]], [[8, 4]], [[8, 4]]]}, percent=True)
    assert [row[-1] for row in figure.table.rows] == ["8", "8 · 4", "8 · 4"]
    (figure,) = layerwise_figures(PLAIN, percent=True)
    assert [row[-1] for row in figure.table.rows] == ["", "", ""]


def test_what_is_damaged_draws_nothing() -> None:
    assert tuple(layerwise_figures({}, percent=True)) == ()
    assert tuple(layerwise_figures({"scores": [[0.1]], "trainings": []}, percent=False)) == ()
