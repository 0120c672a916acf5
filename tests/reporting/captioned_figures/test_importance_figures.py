"""The figure of the importance of columns."""

import numpy as np

from gradwise.records.evidence.fit_evidence import ColumnImportance, Importance
from gradwise.reporting.captioned_figures.importance_figures import importance_figures

COLUMNS = tuple(ColumnImportance(f"column {k}", 0.3 / (k + 1), 0.01) for k in range(25))


def test_the_largest_are_drawn_and_all_are_in_the_table():
    (figure,) = importance_figures(Importance("error_rate", "test", 100, 5, COLUMNS))
    assert figure.name == "importance"
    assert "100 test rows" in figure.description
    assert "Most for column 0: 30 points." in figure.description
    assert "The 20 most important of 25 are shown." in figure.description
    assert len(figure.table.rows) == 25
    assert figure.table.rows[0] == ("column 0", "30 points", "1 points")
    from matplotlib.figure import Figure as Canvas

    ax = Canvas().add_subplot()
    figure.draw(ax)
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], [one.rise for one in COLUMNS[:20]])
    assert ax.get_yticklabels()[0].get_text() == "column 0"
    assert ax.get_xlabel() == "rise of the error ± 2 standard errors"


def test_why_it_is_missing_is_told():
    (said,) = importance_figures(Importance("rmse", "test", skipped="there are 500 columns, more than 300"))
    assert said.text == "The importance of the columns was not measured: there are 500 columns, more than 300."
    assert list(importance_figures(None)) == []
