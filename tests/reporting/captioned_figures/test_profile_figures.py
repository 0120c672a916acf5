"""The figure of where the time of a run went."""

from gradwise.records.evidence.fit_evidence import PhaseTime, Profile
from gradwise.reporting.blocks import Figure
from gradwise.reporting.captioned_figures.profile_figures import profile_figures

FOUND = Profile(8.0, (PhaseTime("reading", 1.0), PhaseTime("updates", 5.0, 3), PhaseTime("other", 2.0)))


def test_the_bars_follow_one_another_and_fill_the_whole() -> None:
    (figure,) = profile_figures(FOUND)
    assert isinstance(figure, Figure)
    assert "8.0 s in all" in figure.description
    assert "updates took most, 5.0 s (62.5\u202f%)" in figure.description
    axes = figure.draw()
    bars = sorted((bar.get_x(), bar.get_width()) for bar in axes.patches)
    assert bars == [(0.0, 1.0), (1.0, 5.0), (6.0, 2.0)]
    assert axes.get_xlim() == (0.0, 8.0)
    assert [row[0] for row in figure.table.rows] == ["reading", "updates", "other", "in all"]
    assert figure.table.rows[-1][1:] == ("8.00", "100.0\u202f%")


def test_a_run_without_a_profile_has_no_figure() -> None:
    assert list(profile_figures(None)) == []
    assert list(profile_figures(Profile(0.0))) == []
