"""What is shown: the summary in words, and progress on a terminal only."""

import dataclasses
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gradwise.cli.terminal.output import Progress, one_line, show_result
from gradwise.records.evidence.fit_evidence import CrossValidationEstimate
from gradwise.records.finding import Finding
from gradwise.records.fit import Fit, read_fit
from gradwise.records.outcome import Outcome
from gradwise.records.score_scale import ScoreScale

TINY = ("--set", "model.widths=8", "--set", "stopping=Off")


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


def test_without_a_terminal_progress_is_silent(capsys):
    with Progress(True) as progress:
        progress.phase("reading")
        progress.training("training", length=100, scale=ScoreScale())
        progress.watch({})
    assert capsys.readouterr() == ("", "")


def seen_on_a_terminal(words: list[str], folder: Path) -> str:
    """All that a program writes to its terminal, without the codes that move the cursor."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gradwise.cli.main", *words],
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "TERM": "xterm", "COLUMNS": "80"},
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:  # Linux says in this way that the other end has closed
            break
        if not block:
            break
        shown += block
    os.close(ours)
    assert process.wait(timeout=60) == 0
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())


@pytest.mark.slow
def test_progress_on_a_terminal(table):
    epochs = ("--set", "stopping.epochs=3000", "--no-report", "--out", "run")
    shown = seen_on_a_terminal(["fit", "flowers.csv", "--target", "kind", *TINY, *epochs], table.parent)
    line = re.search(
        r"training \S+ age ([\d.]+k?)  loss [\d.e-]+  valid [\d.]+\u202f%  best [\d.]+\u202f%  .*? left", shown
    )
    assert line is not None, shown[-2000:]
    assert len(line[0]) <= 80
    assert "Test error" in shown


@pytest.mark.slow
def test_progress_of_a_search_on_a_terminal(table):
    words = ("--trials", "6", "--range", "stopping.epochs=choice(200, 2000, 6000)", "--finalists", "0", "--no-report")
    still = ("--set", "model.dropout=0", "--set", "criterion.penalties.l2.coefficient=0", "--on", "here", "--no-nested")
    asked = ["search", "flowers.csv", "--target", "kind", *TINY, *words, *still, "--folds", "1", "--out", "study"]
    shown = seen_on_a_terminal(asked, table.parent)
    line = re.search(r"search \S+ (\d) of 6 done  (\d) running  best [\d.]+\u202f%", shown)
    assert line is not None, shown[-2000:]
    assert int(line[1]) + int(line[2]) <= 6
    assert len(line[0]) <= 80
    assert "Test error" in shown
