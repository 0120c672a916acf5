"""What the tests of the command line share: small tables, small networks, and the program in this process."""

import contextlib
import csv
import dataclasses
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gradwise.cli.main import run_program

TINY = ("--set", "model.widths=8", "--set", "stopping=Off", "--set", "stopping.epochs=3")


@dataclasses.dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str


def write_table(path: Path, header: list[str], rows: list[list[object]]) -> Path:
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def flowers(count: int = 60, seed: int = 0) -> tuple[list[str], list[list[object]]]:
    """Two measures and a colour that tell three kinds apart, not quite."""
    random = np.random.default_rng(seed)
    rows: list[list[object]] = []
    for number in range(count):
        kind = number % 3
        length, width = (random.normal(centre, 0.6) for centre in (kind, -kind))
        colour = ("red", "blue", "white")[kind if random.random() < 0.8 else 0]
        rows.append([f"{length:.3f}", f"{width:.3f}", colour, number // 4, ("ann", "bob", "cyd")[kind]])
    return ["length", "width", "colour", "bed", "kind"], rows


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def table(here: Path) -> Path:
    """60 rows of three classes, in `flowers.csv`."""
    return write_table(here / "flowers.csv", *flowers())


@pytest.fixture
def gradwise() -> Callable[..., Said]:
    """The command line, called in this process."""

    def call(*words: str) -> Said:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run_program(list(words))
        return Said(code, out.getvalue(), err.getvalue())

    return call


@pytest.fixture
def program() -> Callable[..., "subprocess.Popen[str]"]:
    """The command line, started as a process of its own.

    A shell lets what it runs in the background ignore Ctrl-C, and so would all that these tests start from there.
    """
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    begin = listening + "import sys; from gradwise.cli.main import run_program; sys.exit(run_program())"

    def start(*words: str, **options: object) -> "subprocess.Popen[str]":
        root = Path(__file__).parents[2]
        environment = {**os.environ, "PYTHONPATH": str(root), **options.pop("env", {})}  # type: ignore[dict-item]
        return subprocess.Popen(
            [sys.executable, "-c", begin, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            **options,  # type: ignore[call-overload]
        )

    return start


def train_once(folder: Path, name: str, *words: str) -> Path:
    """A finished run, made in a folder that many tests copy from."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        write_table(folder / "flowers.csv", *flowers())
        quiet = contextlib.redirect_stdout(io.StringIO())
        with quiet:
            assert run_program(["fit", "flowers.csv", *words, *TINY, "--out", name]) == 0
    finally:
        os.chdir(before)
    return folder / name


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on `flowers.csv`, its data beside it. Not to be written to: copy it."""
    return train_once(tmp_path_factory.mktemp("finished"), "run", "--target", "kind")


@pytest.fixture(scope="session")
def finished_numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that predicts two numbers."""
    return train_once(
        tmp_path_factory.mktemp("numbers"), "run", "--target", "length", "--target", "width", "--no-report"
    )


@pytest.fixture
def a_run(finished: Path, table: Path) -> Path:
    """A copy of the finished run in the working directory, called `run`, with its data."""
    return Path(shutil.copytree(finished, table.parent / "run"))


TINY_TRIALS = (
    *("--set", "model.widths=8", "--set", "stopping=Off", "--set", "stopping.epochs=20", "--set", "model.dropout=0"),
    *("--set", "criterion.penalties.l2.coefficient=0", "--folds", "1", "--on", "here"),
)
TINY_SEARCH = (*TINY_TRIALS, "--no-nested", "--strategy", "random", "--committee", "seeds")


def search_once(folder: Path, name: str, *words: str) -> Path:
    """A finished study on `flowers.csv`."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        write_table(folder / "flowers.csv", *flowers())
        with contextlib.redirect_stdout(io.StringIO()):
            assert run_program(["search", "flowers.csv", "--target", "kind", *TINY_SEARCH, *words, "--out", name]) == 0
    finally:
        os.chdir(before)
    return folder / name


@pytest.fixture
def trial_words() -> tuple[str, ...]:
    """The words of small trials on `flowers.csv`."""
    return ("--target", "kind", *TINY_TRIALS)


@pytest.fixture
def search_words() -> tuple[str, ...]:
    """The words of a small search on `flowers.csv`."""
    return ("search", "flowers.csv", "--target", "kind", *TINY_SEARCH)


@pytest.fixture(scope="session")
def finished_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study of four trials. Not to be written to: copy it."""
    return search_once(tmp_path_factory.mktemp("study"), "study", "--trials", "4", "--finalists", "1", "--seeds", "2")


@pytest.fixture
def searched(finished_study: Path, table: Path) -> Path:
    """A copy of the finished study in the working directory, called `study`, with its data."""
    return Path(shutil.copytree(finished_study, table.parent / "study"))
