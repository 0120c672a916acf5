"""Runs that do not end by themselves: killed, interrupted, or out of room. What they leave, and how they go on."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

CHECKPOINT = "checkpoint.safetensors"


def fit_words(epochs: int, *more: str) -> tuple[str, ...]:
    stopping = ("--set", "stopping=Patience", "--set", "stopping.initial_epochs=1e9")
    knobs = ("--set", "model.widths=16", *stopping, "--set", f"stopping.epochs={epochs}")
    return ("fit", "flowers.csv", "--target", "kind", *knobs, *more)


def wait_for(path: Path, process) -> None:
    """Until the file is there; fails if the process ends before."""
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def history(folder: Path) -> dict[str, list]:
    """The history but for its wall-clock column."""
    return pq.read_table(folder / "history.parquet").drop(["seconds"]).to_pydict()


def result(folder: Path) -> dict:
    """The result but for times."""
    found = json.loads((folder / "result.json").read_text())
    return {name: value for name, value in found.items() if name not in {"seconds", "machine"}}


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_very_same_end(table, program, gradwise):
    words = fit_words(4000, "--no-report")
    killed = table.with_name("killed")
    process = program(*words, "--out", "killed", "--checkpoint", "0", cwd=table.parent)
    wait_for(killed / CHECKPOINT, process)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert not (killed / "result.json").exists(), "the run was over before it could be killed"
    assert gradwise(*words, "--out", "killed", "--resume").code == 0
    assert gradwise(*words, "--out", "whole").code == 0
    whole = table.with_name("whole")
    assert (killed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert (killed / "recipe.json").read_bytes() == (whole / "recipe.json").read_bytes()
    assert history(killed) == history(whole)
    assert len(history(whole)["updates"]) > 20
    assert result(killed) == result(whole)


@pytest.mark.slow
def test_ctrl_c_saves_the_best_model_and_a_report_and_the_run_goes_on(table, program, gradwise):
    words = fit_words(15_000)
    folder = table.with_name("mine")
    process = program(*words, "--out", "mine", "--checkpoint", "0", "--json", cwd=table.parent)
    wait_for(folder / CHECKPOINT, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert err.startswith("error: interrupted at age ")
    assert err.count("\n") == 1
    stopped = json.loads(out)
    assert stopped["outcome"] == "interrupted"
    assert (folder / "report.html").is_file()
    assert gradwise("predict", "mine", "flowers.csv").code == 0
    on = json.loads(gradwise(*words, "--out", "mine", "--resume", "--json").out)
    assert on["outcome"] == "finished"
    assert on["age_examples"] > stopped["age_examples"]
    assert len(history(folder)["updates"]) == len(set(history(folder)["updates"]))


@pytest.mark.slow
def test_ctrl_c_before_training_leaves_nothing(table, program):
    os.mkfifo(table.with_name("pipe"))
    process = program("fit", "pipe", "--target", "kind", "--out", "mine", cwd=table.parent)
    with open(table.with_name("pipe"), "w"):  # opens when the program does, which then waits for rows
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err == "error: interrupted. Everything saved so far is intact.\n"
    assert not table.with_name("mine").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kilobytes", "left"), [(1, set()), (20, {"run/.next/checkpoint.safetensors"})], ids=["checkpoint", "report"]
)
def test_a_full_disk_fails_in_one_line_and_leaves_what_existed(kilobytes, left, a_run, gradwise):
    """A limit on the size of files stands for a full disk: first no checkpoint fits, then no report does."""
    here = a_run.parent
    words = fit_words(50, "--out", "run")
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    line = shlex.join([sys.executable, "-m", "gradwise.cli.main", *words, "--overwrite"])
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f {kilobytes}; exec {line}"],
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert "File too large" in done.stderr
    assert done.stderr.count("\n") == 1
    assert {path: path.read_bytes() for path in before} == before
    assert {str(path.relative_to(here)) for path in here.rglob("*") if path.is_file() and path not in before} == left
    if left:  # with room again, it goes on from where it was
        assert gradwise(*words, "--resume").code == 0
        assert result(a_run)["age_examples"] == 50 * 36
        assert not (a_run / ".next").exists()
