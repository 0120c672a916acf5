"""The picture of the examples' losses."""

import numpy as np

from gradwise.evaluation.example_evidence import LossGroups
from gradwise.reporting.plots.example_plots import draw_losses


def test_groups_stand_on_one_another_at_their_losses() -> None:
    data = LossGroups(
        np.array([0.01, 0.1, 1.0, 10.0]), {"learned": np.array([5, 3, 0]), "forgotten": np.array([0, 2, 4])}
    )
    ax = draw_losses(data)
    bars = [(bar.get_x(), bar.get_y(), bar.get_height()) for bar in ax.patches]
    np.testing.assert_allclose(bars[:3], [(0.01, 0, 5), (0.1, 0, 3), (1.0, 0, 0)])
    np.testing.assert_allclose(bars[3:], [(0.01, 5, 0), (0.1, 3, 2), (1.0, 0, 4)])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["learned", "forgotten"]
    assert ax.get_xscale() == "log"
    assert all("$" not in label.get_text() for label in ax.get_xticklabels())
