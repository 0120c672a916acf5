"""What is shown: the summary in words, and progress on a terminal only."""

import dataclasses
from pathlib import Path

import pytest

from gradwise.cli.terminal.output import one_line, show_result
from gradwise.records.evidence.fit_evidence import CrossValidationEstimate
from gradwise.records.finding import Finding
from gradwise.records.fit import Fit, read_fit
from gradwise.records.outcome import Outcome


@pytest.fixture
def found(finished: Path) -> Fit:
    return read_fit(finished)


def test_the_summary_tells_the_numbers_of_the_record(found, capsys):
    show_result(found, Path("run"), Path("run/report.html"))
    said = capsys.readouterr().out
    for part in ("train", "valid", "test"):
        assert f"{100 * found.metrics[part]['error_rate']:.1f}" in said or found.metrics[part]["error_rate"] == 0
        assert f"{found.metrics[part]['log_loss']:.3g}" in said
    assert all(name in said for name in ("accuracy", "macro F1", "AUC"))
    assert "macro recall" not in said  # in the report
    assert "run/report.html" in said
    assert "reached its full length" in said.lower()
    assert "is optimistic: the network was trained on these rows" in " ".join(said.split())
    assert "test examples, read once" in said


def test_findings_come_with_the_next_step_and_without_markup(found, capsys):
    finding = Finding("warning", "the column [bold]x[/bold] is odd.", row="D10", next="drop [it].")
    show_result(dataclasses.replace(found, findings=(finding,)), Path("run"), None)
    said = capsys.readouterr().out
    assert "warning  the column [bold]x[/bold] is odd. Next: drop [it]." in said
    assert "report" not in said


def test_the_estimate_of_folds_is_told(found, capsys):
    estimate = CrossValidationEstimate("error_rate", (0.2, 0.3), 0.25, (0.1, 0.4))
    evidence = dataclasses.replace(found.evidence, estimate=estimate)
    show_result(dataclasses.replace(found, evidence=evidence), Path("run"), None)
    said = capsys.readouterr().out.replace("\u202f", " ")
    assert "2-fold error 25.0 %, 95 % confidence interval 10.0 % – 40.0 %." in said


def test_one_line_is_one_line(found):
    assert "\n" not in one_line(found)
    assert one_line(found).startswith("Test error ")
    failed = dataclasses.replace(found, outcome=Outcome("diverged", 96))
    assert one_line(failed).startswith("The run diverged.")
