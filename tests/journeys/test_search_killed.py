"""Searches that do not end by themselves: killed, interrupted, out of room, or two at once. Nothing is lost."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from gradwise.records.study_files import read_study
from gradwise.searching.running.cohort import Cohort
from gradwise.searching.storage.study_store import Store

JOURNAL = "study.journal"
# Trials of unlike lengths: they end one after another, so that a kill finds some ended and some not.
WORDS = (
    *("search", "flowers.csv", "--target", "kind", "--set", "model.widths=8", "--set", "stopping=Off"),
    *("--set", "model.dropout=0", "--set", "criterion.penalties.l2.coefficient=0", "--on", "here"),
    *("--range", "stopping.epochs=choice(40, 200, 600, 1200, 2000)", "--no-nested", "--folds", "1"),
    *("--finalists", "2", "--seeds", "2"),
)


def journal_trials(folder: Path) -> int:
    """Trials in the journal, counted without opening the study."""
    path = folder / JOURNAL
    return path.read_bytes().count(b'{"op_code":4,') if path.is_file() else 0


def kill_at(process, reached) -> bool:
    """Kills the process when this holds; whether it was still at work."""
    deadline = time.monotonic() + 120
    while not reached():
        if process.poll() is not None:
            _, err = process.communicate()
            assert process.returncode == 0, err
            return False
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    return process.returncode == -signal.SIGKILL


def trials_of(folder: Path):
    return {trial.number: trial for trial in read_study(folder).trials}


@pytest.mark.slow
def test_a_search_killed_again_and_again_ends_as_if_it_never_was(table, program, gradwise):
    words = (*WORDS, "--trials", "6", "--no-report", "--quiet")
    folder = table.with_name("killed")
    kept: dict[int, float] = {}
    killed = 0
    moments = (
        lambda: (folder / "study.toml").is_file(),  # nothing has begun
        lambda: journal_trials(folder) >= 1,
        lambda: journal_trials(folder) >= 4,
        lambda: journal_trials(folder) >= 8,  # beyond the search proper
    )
    for number, moment in enumerate(moments):
        again = ("--resume",) if number else ()
        killed += kill_at(program(*words, *again, "--out", "killed", cwd=table.parent), moment)
        if (folder / JOURNAL).is_file():
            with Store.open(folder / JOURNAL, write=False) as store:
                there = {trial.number: trial.score for trial in store.trials()}
            assert {number: there[number] for number in kept} == kept  # what had ended is there, and was not run again
            kept = there
    assert killed >= 3
    assert len(kept) > 0
    assert gradwise(*words, "--out", "killed", "--resume").code == 0
    assert gradwise(*words, "--out", "whole").code == 0
    one, other = trials_of(folder), trials_of(table.with_name("whole"))
    assert {number: one[number].score for number in kept} == kept
    assert list(one) == list(other)
    for number in one:
        assert one[number].values == other[number].values
        assert (one[number].phase, one[number].outcome) == (other[number].phase, other[number].outcome)
        # A population of another size adds in another order: equal to rounding, on stable rates.
        np.testing.assert_allclose(one[number].score, other[number].score, atol=1e-3)
        np.testing.assert_allclose(one[number].loss, other[number].loss, atol=1e-3)
    ends = [json.loads((path / "result.json").read_text()) for path in (folder, table.with_name("whole"))]
    assert ends[0]["winner"]["number"] == ends[1]["winner"]["number"]
    assert ends[0]["committee"]["numbers"] == ends[1]["committee"]["numbers"]
    assert ends[0]["estimates"]["test"] == pytest.approx(ends[1]["estimates"]["test"], abs=1e-3)


def long_words(folds: int) -> tuple[str, ...]:
    """Three trials that train for long, written after every interval."""
    return (
        *("search", "flowers.csv", "--target", "kind", "--set", "model.widths=8", "--set", "stopping=Off"),
        *("--set", "stopping.epochs=900", "--range", "optimiser.learning_rate=log(1e-3, 1e-2)", "--folds", str(folds)),
        *(
            "--strategy",
            "random",
            "--trials",
            "3",
            "--committee",
            "best",
            "--checkpoint",
            "0",
            "--no-report",
            "--quiet",
        ),
    )


def lines_of(path: Path) -> int:
    """Intervals that a training had gone through when it was last written."""
    with safe_open(path, framework="numpy") as file:
        return len(json.loads(file.metadata()["gradwise"])["history"]["seconds"])


@pytest.fixture
def intervals(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Intervals that each job trains in this process."""
    counts: Counter[int] = Counter()
    read = Cohort._read

    def counted(cohort, host, share):
        counts.update(place.job.number for place in cohort.places.values())
        return read(cohort, host, share)

    monkeypatch.setattr(Cohort, "_read", counted)
    return counts


def same_bits(folder: Path, other: Path) -> None:
    """Two studies whose trials are equal but for the time they took."""
    for one, two in zip(read_study(folder).trials, read_study(other).trials, strict=True):
        assert (one.number, one.values, one.outcome, one.phase) == (two.number, two.values, two.outcome, two.phase)
        assert (one.score, one.loss, one.train_loss) == (two.score, two.loss, two.train_loss)
        assert {**one.curve, "seconds": []} == {**two.curve, "seconds": []}
    assert (folder / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_a_search_killed_in_the_middle_of_long_trials_trains_only_what_was_missing(table, program, gradwise, intervals):
    words = (*long_words(1), "--on", "here")
    running = table.with_name("killed") / "running"
    process = program(*words, "--out", "killed", cwd=table.parent)
    assert kill_at(process, lambda: all((running / f"{64 * trial}.safetensors").is_file() for trial in range(3)))
    left = {64 * trial: lines_of(running / f"{64 * trial}.safetensors") for trial in range(3)}
    assert min(left.values()) >= 1
    assert gradwise(*words, "--out", "killed", "--resume").code == 0
    missing = dict(intervals)
    intervals.clear()
    assert gradwise(*words, "--out", "whole").code == 0
    assert {job: missing[job] + left[job] for job in left} == {job: intervals[job] for job in left}
    assert set(missing) == set(intervals)  # the trials around the best, which follow, are trained whole in both
    assert not running.exists()
    assert not (table.with_name("whole") / "running").exists()
    same_bits(table.with_name("killed"), table.with_name("whole"))


@pytest.mark.slow
def test_worker_processes_go_on_with_what_others_had_begun(table, program, gradwise):
    """Killed with one worker while a fold has ended and others have not; gone on with by two, to the same bits."""
    running = table.with_name("killed") / "running"
    process = program(*long_words(2), "--on", "workers:1", "--out", "killed", cwd=table.parent)
    assert kill_at(process, lambda: any(running.glob("ended/*.safetensors")) and any(running.glob("*.safetensors")))
    assert gradwise(*long_words(2), "--on", "workers:2", "--out", "killed", "--resume").code == 0
    assert gradwise(*long_words(2), "--on", "workers:1", "--out", "whole").code == 0
    assert not running.exists()
    same_bits(table.with_name("killed"), table.with_name("whole"))


@pytest.mark.slow
def test_a_search_that_was_killed_can_predict(table, program, gradwise):
    folder = table.with_name("killed")
    words = (*WORDS, "--trials", "40", "--committee", "ensemble", "--no-report", "--quiet")
    assert kill_at(program(*words, "--out", "killed", cwd=table.parent), (folder / "model.safetensors").is_file)
    assert not (folder / "result.json").exists()
    said = gradwise("predict", "killed", str(table), "--out", "said.csv")
    assert said.code == 0, said.err
    assert len(table.with_name("said.csv").read_text().splitlines()) == len(table.read_text().splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_concludes_what_there_is_and_the_search_goes_on(table, program, gradwise, sent):
    words = (*WORDS, "--trials", "6")
    folder = table.with_name("mine")
    process = program(*words, "--out", "mine", "--json", cwd=table.parent)
    deadline = time.monotonic() + 120
    while journal_trials(folder) < 1:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(sent)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + sent, err
    assert "Traceback" not in err
    assert err.startswith("error: interrupted after ")
    assert "--resume" in err
    assert err.count("\n") == 1
    stopped = json.loads(out)
    assert stopped["outcome"] == "interrupted"
    assert (folder / "report.html").is_file()
    assert gradwise("predict", "mine", "flowers.csv", "--quiet").code == 0
    said = gradwise("search", "--out", "mine", "--resume", "--on", "here", "--json", "--no-report")
    on = json.loads(said.out)
    assert on["outcome"] == "finished"
    assert on["outcomes"].keys() == {"finished"}  # those that were cut short were run again, to their ends
    assert [trial.phase for trial in read_study(folder).trials].count("search") == 6


def test_two_processes_cannot_work_on_one_study(searched, here, gradwise):
    from gradwise.searching.storage.backend import FileOwner

    before = {path: path.read_bytes() for path in searched.rglob("*") if path.is_file()}
    for name in (JOURNAL, "study"):  # while it trains, and while it writes its report
        owner = FileOwner(searched / name)
        try:
            said = gradwise("search", "--out", "study", "--resume", "--trials", "+1", "--on", "here")
        finally:
            owner.release()
        assert said.code == 2
        assert said.err.startswith(f"error: another process (process {os.getpid()} on ")
        assert said.err.count("\n") == 1
        assert {path: path.read_bytes() for path in searched.rglob("*") if path.is_file()} == before


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [4, 12], ids=["journal", "report"])
def test_a_full_disk_fails_in_one_line_and_the_study_goes_on(kilobytes, table, gradwise):
    """A limit on the size of files stands for a full disk: first no trial fits, then no report does."""
    tiny = ("--set", "stopping.epochs=3", "--range", "optimiser.learning_rate=log(1e-3, 1e-2)")
    words = (*WORDS[:8], *tiny, *WORDS[8:14], "--no-nested", "--folds", "1", "--trials", "3", "--finalists", "0")
    line = shlex.join([sys.executable, "-m", "gradwise.cli.main", *words, "--out", "mine"])
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f {kilobytes}; exec {line}"],
        cwd=table.parent,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert done.stderr.startswith("error: ")
    assert "File too large" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (table.with_name("mine") / "result.json").exists()
    said = gradwise("search", "--out", "mine", "--resume", "--on", "here", "--json", "--no-report")
    assert said.code == 0, said.err
    assert [trial.number for trial in read_study("mine").trials if trial.phase == "search"] == [0, 1, 2]
