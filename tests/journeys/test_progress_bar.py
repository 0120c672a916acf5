"""Progress is shown on a terminal only."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gradwise.journeys.progress_bar import ProgressBar
from gradwise.records.score_scale import ScoreScale

TINY = ("--set", "model.widths=8", "--set", "stopping=Off")


def test_without_a_terminal_progress_is_silent(capsys):
    with ProgressBar(True) as progress:
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
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TERM": "xterm", "COLUMNS": "80"},
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
