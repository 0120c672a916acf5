"""What gradwise prints as a next step works: every command is run on the run that printed it."""

import contextlib
import io
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gradwise as gw
from gradwise.cli.main import run_program

ROWS = 120
SHORT = ("--set", "stopping.epochs=6", "--set", "model.widths=8,8")
# A run of each kind of trouble; what is printed after it is tried.
RUNS: dict[str, tuple[str, ...]] = {
    "too short": ("wine", "--set", "stopping.epochs=2"),
    "noise": ("noise-train.csv", "--target", "y", *SHORT),
    "in time": ("noise-train.csv", "--target", "y", "--time", "when", *SHORT),
    "groups": ("noise-train.csv", "--target", "y", "--group", "town", *SHORT),
    "numbers": ("noise-train.csv", "--target", "a", *SHORT),
    "diverged": ("wine", "--set", "optimiser=Sgd", "--set", "optimiser.learning_rate=1e9", "--set", "model.widths=8"),
    "patience": ("wine", "--set", "optimiser=Sgd", "--set", "optimiser.learning_rate=1e-5", "--set", "model.widths=8"),
    "pre-trained": ("digits", "--pretrain", "denoising:8", "--set", "stopping.epochs=2"),
}


def _frame() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.normal(size=(ROWS, 6)), columns=list("abcdef"))
    when = pd.date_range("2020-01-01", periods=ROWS).astype(str)
    return frame.assign(
        when=when, town=draw.choice(["Bath", "Leeds", "York"], ROWS), same=1.0, y=draw.choice(["u", "v"], ROWS)
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    _frame().to_csv(tmp_path / "noise-train.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _commands(texts: list[str]) -> Iterator[str]:
    for text in texts:
        yield from re.findall(r"`(gradwise [^`]+|gw\.[^`]+)`", text)
        if text.startswith(("gradwise ", "gw.")):
            yield text.rstrip(".")


def _said(result: dict[str, Any]) -> list[str]:
    verdict = result["evidence"].get("verdict") or {}
    return [one["next"] for one in result["findings"] if one["next"]] + verdict.get("remedies", [])


def _is_template(command: str) -> bool:
    return re.search(r"\b(DATA|COLUMN|RUN|NEW_DATA)\b", command) is not None


def _tried(command: str, number: int) -> list[str]:
    """The words of the command, shortened: as it is, a remedy may train for minutes."""
    words = shlex.split(command)[1:]
    shorter = {
        "fit": ["--max-time", "0.2s"],
        "check": ["--only", "data"],
        "search": ["--budget", "2s", "--folds", "1", "--on", "here"],  # the last of several is taken
    }
    return [*words, *shorter[words[0]], "--no-report", "--quiet", "--out", f"next-{number}"]


def _next_steps(name: str) -> list[str]:
    assert run_program(["fit", *RUNS[name], "--out", "run", "--quiet", "--no-report"]) in (0, 1)
    found = list(dict.fromkeys(_commands(_said(json.loads(Path("run/result.json").read_text())))))
    return [command for command in found if not _is_template(command)]


@pytest.mark.parametrize("name", RUNS)
def test_every_command_of_a_run_is_valid(here: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is trained: the request, the data and the recipe are examined."""
    for command in _next_steps(name):
        words = shlex.split(command)[1:]
        if words[0] == "check":
            continue  # it has no dry run
        capsys.readouterr()
        assert run_program([*words, "--dry-run", "--quiet"]) == 0, (command, capsys.readouterr().err)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_every_command_of_a_run_works(here: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    commands = _next_steps(name)
    assert commands
    for number, command in enumerate(commands):
        capsys.readouterr()
        code = run_program(_tried(command, number))
        said = capsys.readouterr().err
        assert code == 0 or (name == "diverged" and "diverged" in said), (command, said)


def test_what_python_says_is_python(here: Path) -> None:
    """Remedies of data in memory are calls, which work on these data."""
    data = _frame()
    model = gw.fit(data, target="y", drop=["when"], set={"stopping.epochs": 6, "model.widths": (8, 8)})
    calls = [one for one in _commands(_said(model.record.summary())) if one.startswith("gw.")]
    assert any(call.startswith("gw.check(") for call in calls) or any("set={" in call for call in calls)
    assert not any("gradwise fit" in one for one in _said(model.record.summary()) if "COLUMN" not in one)
    for call in calls:
        shortened = call.removesuffix(")") + (', only="data")' if call.startswith("gw.check") else ', max_time="0.2s")')
        with contextlib.redirect_stderr(io.StringIO()):
            assert eval(shortened, {"gw": gw, "data": data}) is not None


def test_the_last_lines_of_a_run_and_of_a_search_work(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`report`, `predict` and `resume`: the data file stands for the new data."""
    fit = ["fit", "noise-train.csv", "--target", "y", *SHORT, "--out", "run", "--no-report"]
    search = [
        "search",
        "noise-train.csv",
        "--target",
        "y",
        "--trials",
        "2",
        "--folds",
        "1",
        "--on",
        "here",
        "--no-report",
    ]
    for words in (fit, [*search, *SHORT, "--out", "study"]):
        capsys.readouterr()
        assert run_program(words) == 0
        lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
        steps = [rest[0] for name, *rest in filter(None, lines) if name in ("predict", "resume", "explain")]
        assert steps
        for step in steps:
            step = step.replace("NEW_DATA", "noise-train.csv").replace("+50", "+1")
            more = ["--no-report", "--quiet"] if " search " in step else []
            assert run_program([*shlex.split(step)[1:], *more]) == 0, step
