"""README and docs are true: their Python runs, the command line accepts their commands, and their TOML is read.

A page is read as its reader would follow it: block by block, in one folder with the files that it mentions. A block
whose first line names a file (`# problem.py`) is that file. So that it takes seconds, every training ends after two
epochs and every search after two trials, on a machine of one core; nothing else is changed.
"""

import dataclasses
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from scipy.io import wavfile
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

from gradwise.cli import commands
from gradwise.cli.main import run_program
from gradwise.journeys.requests.options import Request
from gradwise.searching.storage.budget import Budget
from gradwise.training.stopping import Off, Patience

matplotlib.use("agg")

ROOT = Path(__file__).resolve().parents[1]
SLOW = {"cluster", "features"}
EXTRA = {"mnist"}  # named sets that are fetched, unless `GRADWISE_DATA` has them
EPOCHS, TRIALS, SECONDS = 2, 2, 2.0


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block of a page, and the line that it begins after."""

    language: str
    text: str
    line: int

    @property
    def file(self) -> str:
        """The file that the block is, if its first line says so."""
        named = re.match(r"# ([\w-]+\.(?:py|toml))\n", self.text)
        return named[1] if named else ""


def blocks_of(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, without the indentation of the list that they stand in."""
    for found in re.finditer(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.DOTALL | re.MULTILINE):
        yield Block(found[2], textwrap.dedent(found[3]), text.count("\n", 0, found.start()) + 1)


def commands_of(block: Block) -> Iterator[list[str]]:
    """The words of each command; a block that shows a session (`$ gradwise ...`, then its output) has none."""
    if block.language not in ("", "sh", "shell", "bash") or block.text.startswith("$ "):
        return
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.startswith("gradwise "):
            yield shlex.split(line, comments=True)[1:]


PATHS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = {path.stem: list(blocks_of(path.read_text())) for path in PATHS}


def commands_on(page: str) -> list[list[str]]:
    """All commands of a page."""
    return [words for block in PAGES[page] for words in commands_of(block)]


def pages_with(language: str) -> list[Any]:
    names = sorted(name for name, blocks in PAGES.items() if any(one.language == language for one in blocks))
    return [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in names]


def houses() -> pd.DataFrame:
    """Real rows under other names: numbers, a column of text, dates, gaps, and groups."""
    frame = load_diabetes(as_frame=True, scaled=False).frame
    size, draw = frame["bp"].round().mask(frame["s6"] > 110), np.random.default_rng(0)
    towns = pd.cut(frame["bmi"], [0, 23, 27, 99], labels=["Bath", "Leeds", "York"]).astype(str)
    sold = pd.Timestamp("2020-01-01") + pd.to_timedelta(draw.integers(0, 1500, len(frame)), unit="D")
    return pd.DataFrame(
        {
            "id": range(len(frame)),
            "size": size,
            "town": towns,
            "zip": 10000 + frame["age"].astype(int) % 7,
            "age": frame["age"],
            "sold": sold,
            "price": frame["target"] * 1000,
        }
    )


def recordings() -> dict[str, np.ndarray]:
    """Sixty tones of two kinds, of different lengths, from six speakers."""
    draw = np.random.default_rng(0)
    kinds, lengths = np.arange(60) % 2, draw.integers(8, 20, 60)
    tones = [
        np.sin((0.5 + kind) * np.arange(steps)[:, None] + [0, 1]) for kind, steps in zip(kinds, lengths, strict=True)
    ]
    beside = {"digit": kinds, "speaker": np.arange(60) // 10}
    return {"values": np.concatenate(tones), "offsets": np.concatenate([[0], np.cumsum(lengths)]), **beside}


def reviews() -> pd.DataFrame:
    """Sixty short texts of two kinds, and the year of each."""
    draw = np.random.default_rng(0)
    words = {"good": ["warm", "clever", "funny"], "bad": ["dull", "slow", "stale"]}
    labels = draw.choice(list(words), 60).tolist()
    texts = [f"scene {number} of this film is {draw.choice(words[label])}" for number, label in enumerate(labels)]
    return pd.DataFrame({"review": texts, "year": draw.integers(1990, 2020, 60), "label": labels})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with the files that pages mention."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    houses().to_csv("houses.csv", index=False)
    houses().drop(columns="price").head(20).to_csv("new.csv", index=False)
    tumours = load_breast_cancer(as_frame=True).frame.rename(columns={"target": "y"})
    tumours.assign(y=np.where(tumours["y"], "benign", "malignant")).to_csv("data.csv", index=False)
    images = load_digits().images.astype(np.float32)
    np.save("faces.npy", images)
    np.save("new.npy", images[:20])
    np.savez("many.npz", X=images, y=load_digits().target)
    np.savez("spoken.npz", **recordings())
    formulas = [
        f"{text},{holds}" for text, holds in [("(and T (or F T))", "yes"), ("(or F F)", "no"), ("F", "no")] * 20
    ]
    Path("formulas.csv").write_text("\n".join(["formula,holds", *formulas]))
    reviews().to_csv("reviews.csv", index=False)
    for number, (image, digit) in enumerate(zip(images[:40], load_digits().target, strict=False)):
        place = Path("pictures", "even" if digit % 2 == 0 else "odd", f"{number}.png")
        place.parent.mkdir(parents=True, exist_ok=True)
        matplotlib.image.imsave(place, image, cmap="gray")
    for number in range(20):
        place = Path("words", "no" if number % 2 == 0 else "yes", f"{number}.wav")
        place.parent.mkdir(parents=True, exist_ok=True)
        wavfile.write(place, 16_000, np.sin((0.1 + number % 2) * np.arange(1600 + 40 * number)))
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings of two epochs, searches of two trials, on a machine of one core."""
    for kind in (Off, Patience):
        whole = kind.limit_examples

        def limit_examples(self: Any, count: int, whole: Any = whole) -> int:
            return min(whole(self, count), EPOCHS * count)

        monkeypatch.setattr(kind, "limit_examples", limit_examples)
    given = Budget.__init__

    def begin(self: Budget, seconds: float | None = None, trials: int | None = None, more: bool = False) -> None:
        given(self, seconds and min(seconds, SECONDS), trials and min(trials, TRIALS), more)

    monkeypatch.setattr(Budget, "__init__", begin)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)


@pytest.mark.filterwarnings("ignore:column .* values of categories not seen:UserWarning")  # which a page shows
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("page", pages_with("python"))
def test_the_python_of_a_page_runs(page: str, folder: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in PAGES[page]:
        if block.file:
            (folder / block.file).write_text(block.text)
        elif block.language == "python":
            exec(compile("\n" * block.line + block.text, f"{page}.md", "exec"), names)
    for test in [thing for name, thing in names.items() if name.startswith("test_")]:
        test()


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """The requests of commands, which are parsed and validated; one that can be planned is, and nothing is trained."""
    found: list[Request] = []
    run = commands.run_command

    def plan(request: Request, begun: float) -> int:
        found.append(request)
        there = getattr(request, "data", "") not in EXTRA or "GRADWISE_DATA" in os.environ
        goes_on = getattr(request, "resume", False) or getattr(request, "from_", None)  # from a run that is not here
        planned = there and "dry_run" in request.options() and not goes_on
        return run(dataclasses.replace(request, dry_run=True), begun) if planned else 0  # type: ignore[call-arg]

    monkeypatch.setattr(commands, "run_command", plan)
    return found


@pytest.mark.parametrize("page", sorted(name for name in PAGES if commands_on(name)))
def test_the_command_line_accepts_the_commands_of_a_page(
    page: str, folder: Path, requested: list[Request], capsys: pytest.CaptureFixture[str]
) -> None:
    for block in PAGES[page]:
        if block.file:
            (folder / block.file).write_text(block.text)
        for words in commands_of(block):
            before = len(requested)
            code = run_program(words)
            assert (code, len(requested)) == (0, before + 1), f"gradwise {shlex.join(words)}: {capsys.readouterr().err}"


# What is said of a command that a sentence only names: `gradwise predict`, `gradwise search --out DIR --resume`.
ONLY_NAMED = ("is missing", "missing argument", "nothing to check", "--resume needs", "No such file")


def test_commands_within_sentences_have_options_that_exist(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "run_command", lambda request, begun: 0)
    found = {words for path in PATHS for words in re.findall(r"`(gradwise [^`\n]+)`", path.read_text())}
    assert len(found) > 80
    for words in sorted(found):
        code = run_program(shlex.split(words)[1:])
        said = capsys.readouterr().err
        assert code == 0 or any(reason in said for reason in ONLY_NAMED), f"{words}: {said}"


def test_every_toml_of_a_page_is_a_file_that_a_command_on_it_reads() -> None:
    for page, blocks in PAGES.items():
        files = [block.file for block in blocks if block.language == "toml"]
        read = {word for words in commands_on(page) for word in words}
        assert set(files) <= read, page


def test_a_page_is_cut_into_blocks_and_commands() -> None:
    indented = "- a list\n\n  ```\n  gradwise fit a.csv \\\n    --seed 3  # why\n  ray start\n  ```\n"
    page = f"{indented}\n```python\n# own.py\nx = 1\n```\n"
    first, second = blocks_of(page)
    assert list(commands_of(first)) == [["fit", "a.csv", "--seed", "3"]]
    assert (second.language, second.file, second.text, second.line) == ("python", "own.py", "# own.py\nx = 1\n", 9)
    shown = Block("", "$ gradwise fit a.csv\nTest error 2 %\n", 1)
    assert list(commands_of(shown)) == []
