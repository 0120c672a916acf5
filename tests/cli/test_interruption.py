"""Runs that do not end by themselves: killed, interrupted, or out of room. What they leave, and how they go on."""

import json
import os
import resource
import signal
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

CHECKPOINT = "checkpoint.safetensors"


def fit_words(epochs: int, *more: str) -> tuple[str, ...]:
    knobs = ("--set", "model.widths=16", "--set", "stopping.initial_epochs=1e9", "--set", f"stopping.epochs={epochs}")
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


def test_a_killed_run_resumes_to_the_very_same_end(table, program, gradwise):
    words = fit_words(8000, "--checkpoint", "0", "--no-report")
    killed = table.with_name("killed")
    process = program(*words, "--out", "killed", cwd=table.parent)
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


def test_ctrl_c_saves_the_best_model_and_a_report_and_the_run_goes_on(table, program, gradwise):
    words = fit_words(60_000, "--checkpoint", "0")
    folder = table.with_name("mine")
    process = program(*words, "--out", "mine", "--json", cwd=table.parent)
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
    on = json.loads(gradwise(*words, "--out", "mine", "--resume", "--max-time", "1h", "--json").out)
    assert on["outcome"] == "finished"
    assert on["age_examples"] > stopped["age_examples"]
    assert len(history(folder)["updates"]) == len(set(history(folder)["updates"]))


def test_ctrl_c_before_training_leaves_nothing(table, program):
    reader, writer = os.pipe()
    process = program("fit", "-", "--target", "kind", "--out", "mine", cwd=table.parent, stdin=reader)
    time.sleep(0.1)
    while b"gradwise" not in Path(f"/proc/{process.pid}/maps").read_bytes() and process.poll() is None:
        if any(name in Path(f"/proc/{process.pid}/maps").read_text() for name in ("libjax_common", "xla_extension")):
            break  # it has imported the library, so it will soon wait for its input
        time.sleep(0.05)
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    os.close(reader)
    os.close(writer)
    assert (process.returncode, out) == (130, "")
    assert err == "error: interrupted. What was saved before is still there.\n"
    assert not table.with_name("mine").exists()


@pytest.mark.parametrize("limit", [1000, 20_000])
def test_a_full_disk_fails_in_one_line_and_leaves_what_existed(limit, a_run, program):
    """A limit on the size of files stands for a full disk: first not even a checkpoint fits, then no report."""
    before = {path: path.read_bytes() for path in a_run.parent.rglob("*") if path.is_file()}

    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    process = program(*fit_words(50, "--out", "run", "--overwrite"), cwd=a_run.parent, preexec_fn=no_room)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert err.startswith("error: File too large")
    assert err.count("\n") == 1
    assert {path: path.read_bytes() for path in before} == before
    left = {path for path in a_run.parent.rglob("*") if path.is_file()} - set(before)
    assert left == set()
