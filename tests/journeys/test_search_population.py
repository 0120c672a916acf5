"""`gradwise search --strategy pbt` from the command line to its folder and back, killed on the way."""

import json
import signal
import time
from pathlib import Path

import pytest

from gradwise.records.study_files import read_study

WORDS = (
    *("search", "flowers.csv", "--target", "kind", "--set", "model.widths=8", "--set", "batches.size=8"),
    *("--set", "model.dropout=0.1", "--quiet"),
)


def test_a_study_of_members_has_a_winner_a_report_and_predictions(table, gradwise):
    words = (*WORDS, "--strategy", "pbt(intervals=4, every=1)", "--trials", "4", "--out", "study")
    said = gradwise(*words)
    assert said.code == 0, said.err
    assert said.out.startswith("Test error ")
    result = json.loads(Path("study/result.json").read_text())
    (story,) = result["analysis"]["populations"]
    assert result["trials"] == story["members"] == 4
    rate = "optimiser.optimiser.learning_rate"
    assert rate in story["changing"]
    assert "model.widths.count" not in story["knobs"]  # what shapes the program is left out of the recommended space
    assert result["winner"]["values"][rate] > 0
    page = Path("study/report.html").read_text()
    assert "The schedule of" in page
    assert "How the knobs changed" in page
    assert gradwise("predict", "study", "flowers.csv", "--out", "predicted.csv").code == 0
    assert Path("predicted.csv").read_text().startswith("prediction\n")
    assert gradwise("report", "study").code == 0
    assert Path("study/report.html").read_text() == page
    again = gradwise(
        "search", "--study", "study/study.toml", "--out", "again", "--on", "here", "--no-report", "--quiet"
    )
    assert again.code == 0, again.err
    assert json.loads(Path("again/result.json").read_text())["analysis"] == result["analysis"]
    assert Path("again/model.safetensors").read_bytes() == Path("study/model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--trials", "3"), "at least 4 members; got 3"),
        (
            ("--trials", "8", "--range", "model.inputs.numbers.frequencies=choice(8, 16)"),
            "changes the compiled program",
        ),
        (("--trials", "8", "--committee", "seeds"), "retrains a setting, which pbt cannot do"),
        (("--trials", "8", "--folds", "3"), "pbt uses one validation set"),
    ],
)
def test_what_a_population_cannot_do_is_refused_in_one_line(table, gradwise, words, said):
    answer = gradwise(*WORDS, "--strategy", "population", "--out", "study", *words)
    assert answer.code == 2
    assert said in answer.err
    assert answer.err.count("\n") == 1
    assert not Path("study").exists()


def ended_when(process, reached, sent) -> int:
    """Sends the signal when this holds; how the process ended."""
    deadline = time.monotonic() + 120
    while not reached():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(sent)
    process.communicate(timeout=60)
    return int(process.returncode)


@pytest.mark.slow
@pytest.mark.parametrize("on", ["here", "workers:2"])
def test_a_population_killed_and_interrupted_ends_as_if_it_never_was(table, program, gradwise, on):
    words = (*WORDS, "--on", on, "--strategy", "pbt(intervals=60, every=2)", "--trials", "8", "--no-report")
    checkpoint = Path("cut/population/0-8/checkpoint.safetensors")
    code = ended_when(program(*words, "--out", "cut", cwd=table.parent), checkpoint.is_file, signal.SIGKILL)
    assert code == -signal.SIGKILL
    first = checkpoint.stat().st_mtime_ns
    process = program("search", "--out", "cut", "--resume", "--on", on, "--no-report", cwd=table.parent)
    code = ended_when(process, lambda: checkpoint.stat().st_mtime_ns > first, signal.SIGINT)
    assert code == 130
    assert read_study("cut").outcome == "interrupted"
    assert gradwise("predict", "cut", "flowers.csv", "--out", "predicted.csv").code == 0  # what there was
    assert gradwise("search", "--out", "cut", "--resume", "--on", on, "--no-report", "--quiet").code == 0
    assert gradwise(*words, "--out", "whole").code == 0
    one, other = read_study("cut"), read_study("whole")
    assert [(t.number, t.score, t.values) for t in one.trials] == [(t.number, t.score, t.values) for t in other.trials]
    assert one.analysis == other.analysis
    assert one.estimates == other.estimates
    assert Path("cut/model.safetensors").read_bytes() == Path("whole/model.safetensors").read_bytes()
