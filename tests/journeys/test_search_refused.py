"""Bad input to `gradwise search`, one table: each request is refused with one line and leaves everything as it was."""

import dataclasses
import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

RATE = ("--range", "optimiser.learning_rate=log(1e-3, 1e-2)")
RESUME = ("search", "--out", "study", "--resume", "--trials", "6", "--on", "here")


@dataclasses.dataclass(frozen=True)
class Case:
    """A request, what lies about when it is made, and what the answer must say."""

    name: str
    words: tuple[str, ...]
    says: tuple[str, ...]
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    prepare: Callable[[Path], object] = lambda here: None
    code: int = 2


def _option(name: str, options: tuple[str, ...], *says: str, code: int = 2) -> Case:
    """Options that cannot be meant, with a table that is fine; before them what makes a search small."""
    data = ("search", "flowers.csv", "--target", "kind", "--on", "here", "--out", "mine")
    return Case(name, (*data, *options), says, code=code)


def _file(name: str, content: str, *says: str) -> Case:
    return Case(name, ("search", "--study", "my.toml", "--out", "mine"), says, {"my.toml": content})


def _rewrite(here: Path, change: Callable[[dict], object]) -> None:
    """Changes what the study in `study` says about itself."""
    path = here / "study" / "study.journal"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        for seal in ("checksum", "after"):  # whoever wrote it did not seal it, as plain Optuna does not
            line.pop(seal, None)
        if "gradwise" in (line.get("user_attr") or {}):
            change(line["user_attr"])
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


CASES = [
    # How much, by whom, how.
    _option("no budget", ("--budget", "banana"), "--budget: invalid budget 'banana'", "10min"),
    _option("no unit", ("--budget", "32"), "trials or seconds"),
    _option("no time at all", ("--budget", "0s"), "a time above 0"),
    _option("no trial", ("--trials", "0"), "at least 1 trial"),
    _option("trials of words", ("--trials", "many"), "--trials many", "+50"),
    _option("trials and budget", ("--trials", "3", "--budget", "10min"), "--trials and --budget exclude each other"),
    _option("more of nothing", ("--trials", "+3"), "extends a study", "--resume"),
    _option("unknown strategy", ("--strategy", "gird"), "'grid'"),
    _option("unknown sampler", ("--strategy", "FooSampler", *RATE), "unknown Optuna sampler 'FooSampler'"),
    _option("grid of too many cells", ("--strategy", "grid(values=40)"), "cells", "most_cells"),
    _option("unknown committee", ("--committee", "seats"), "choose from", "seeds"),
    _option("bags of folds", ("--committee", "bagging", "--folds", "3"), "--folds 1"),
    _option("no fold", ("--folds", "0"), "--folds 0", "from 1"),
    _option("too many seeds", ("--seeds", "100000"), "--seeds"),
    _option("negative checkpoint", ("--checkpoint", "-1"), "--checkpoint -1", "10min"),
    _option("nobody", ("--on", "moon"), "--on moon", "workers:N"),
    _option("no workers", ("--on", "workers:0"), "--on workers:0"),
    _option("no such device here", ("--on", "gpu"), "no GPU"),
    _option("folds of time", ("--folds", "3", "--time", "bed"), "folds mix past and future"),
    _option("double folds of time", ("--nested", "--time", "bed"), "folds mix past and future"),
    _option("unknown option", ("--bugdet", "1min"), "unknown option --bugdet", "'--budget'"),
    _option("unknown metric", ("--metric", "rmse"), "unknown metric `rmse` for classes"),
    Case("no data", ("search",), ("DATA",)),
    Case("two data", ("search", "iris", "wine"), ("unexpected extra argument(s) (wine)",)),
    Case("missing data", ("search", "flower.csv", "--target", "kind"), ("'flowers.csv'",)),
    # Where to search.
    _option("range without a path", ("--range", "log(1, 2)"), "path=range"),
    _option("unknown knob", ("--range", "optimiser.learning_rat=log(1, 2)"), "'optimiser.learning_rate'"),
    _option("no range", ("--range", "model.dropout=often"), "invalid range 'often'"),
    _option("range of one end", ("--range", "model.dropout=uniform(0.1)"), "two ends"),
    _option("range upside down", ("--range", "model.dropout=uniform(0.5, 0.1)"), "below its high end"),
    _option("range beyond what is allowed", ("--range", "model.dropout=uniform(0, 3)"), "model.dropout", "3"),
    _option("range of an unknown part", ("--range", "optimiser=choice(Sdg, Adam)"), "'Sgd'"),
    _option(
        "set and searched",
        ("--set", "model.dropout=0", "--range", "model.dropout=uniform(0, 0.5)"),
        "--set (fixed) and --range (searched)",
    ),
    _option(
        "nothing left to search",
        (
            *("--set", "optimiser.learning_rate=0.01", "--set", "optimiser.decay=0", "--set", "model.dropout=0"),
            *("--set", "model.inputs.numbers.deviation=0.1", "--set", "criterion.loss.label_smoothing=0"),
        ),
        "nothing to search",
        "--range",
    ),
    _option("nothing fits", ("--range", "model.widths.each=integers(1000000000, 2000000000)"), "no trial is possible"),
    # Study files.
    Case("missing study file", ("search", "--study", "my.toml"), ("my.toml cannot be read",)),
    _file("study file is no TOML", "[search\n", "not TOML"),
    _file("study file without data", "[search]\nseed = 1\n", "needs `data`"),
    _file("study file with an unknown word", '[search]\ndata = "iris"\nsead = 1\n', "'seed'"),
    _file("study file with an unknown table", '[search]\ndata = "iris"\n[rages]\n', "'ranges'"),
    _file(
        "study file with no range", '[search]\ndata = "iris"\n[ranges]\n"model.dropout" = 3\n', "[ranges] model.dropout"
    ),
    _file("study file with a part", '[search]\ndata = "iris"\n[recipe]\n"optimiser" = "Sdg"\n', "my.toml", "'Sgd'"),
    _file("study file with a wrong value", '[search]\ndata = "iris"\nfolds = "few"\n', "my.toml: folds few"),
    # Stores.
    _option("store in no folder", ("--store", "sqlite:///no/where.db"), "the folder no does not exist"),
    Case(
        "store is no database",
        ("search", "flowers.csv", "--target", "kind", "--on", "here", "--store", "sqlite:///my.db", "--out", "mine"),
        ("not a SQLite database",),
        {"my.db": "once upon a time " * 99},
    ),
    _option("no database answers", ("--store", "postgresql://me:secret@localhost:1/x"), "me:***@", "does not answer"),
    _option("store of no kind", ("--store", "cloud://x"), "cloud://x"),
    # The folder, and the study in it.
    _option("folder exists", ("--out", "study"), "study already exists", "--resume"),
    _option("resume and overwrite", ("--resume", "--overwrite", "--out", "study"), "exclude each other"),
    _option("resume nothing named", ("--resume", "--out", "nowhere"), "no run at nowhere"),
    _option("a run is no study", ("--resume", "--out", "run"), "run holds no study"),
    Case("another seed", (*RESUME, "--seed", "5"), ("differs", "its seed is 0")),
    Case("another metric", (*RESUME, "--metric", "log_loss"), ("differs",)),
    Case("another range", (*RESUME, *RATE), ("differs", "has another range")),
    Case("another knob", (*RESUME, "--range", "batches.size=choice(8, 16)"), ("`batches.size` is not searched",)),
    Case("another strategy", (*RESUME, "--strategy", "sobol"), ("its strategy is Random",)),
    Case(
        "other data",
        RESUME,
        ("its data are different",),
        prepare=lambda here: (here / "flowers.csv").write_text(
            (here / "flowers.csv").read_text().replace(",red,", ",blue,", 1)
        ),
    ),
    Case(
        "someone else's study",
        RESUME,
        ("was not written by gradwise",),
        prepare=lambda here: _rewrite(here, lambda said: said.update({"theirs": said.pop("gradwise")})),
    ),
    Case(
        "a study of another version",
        RESUME,
        ("format 99", "written by gradwise 9.9"),
        prepare=lambda here: _rewrite(here, lambda said: said["gradwise"].update({"format": 99, "version": "9.9"})),
    ),
    Case(
        "damaged study file",
        RESUME,
        ("study/study.toml is not TOML",),
        prepare=lambda here: (here / "study" / "study.toml").write_text("[search"),
    ),
    Case(
        "more trials of no journal",
        ("search", "--out", "study", "--resume", "--trials", "+3"),
        ("study.journal",),
        prepare=lambda here: (here / "study" / "study.journal").unlink(),
    ),
    # What was written.
    Case(
        "report of a damaged study",
        ("report", "study"),
        ("the study in study is damaged",),
        prepare=lambda here: (here / "study" / "trials.parquet").write_bytes(b"PAR1"),
    ),
    Case(
        "report of half a study",
        ("report", "study"),
        ("not the folder of a finished study", "study.json"),
        prepare=lambda here: (here / "study" / "study.json").unlink(),
    ),
    Case(
        "predict without a model",
        ("predict", "study", "flowers.csv"),
        ("no model.safetensors",),
        prepare=lambda here: (here / "study" / "model.safetensors").unlink(),
    ),
]


def _snapshot(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_there_are_enough_cases():
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_one_line_and_nothing_touched(case, searched, a_run, here, gradwise):
    for name, content in case.files.items():
        (here / name).write_text(content)
    case.prepare(here)
    before = _snapshot(here)
    said = gradwise(*case.words)
    assert said.err.count("\n") == 1, said.err
    assert said.err.startswith("error: ")
    assert "Traceback" not in said.err
    for word in case.says:
        assert word.lower() in said.err.lower(), said.err
    assert said.code == case.code
    assert said.out == ""
    assert _snapshot(here) == before


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_a_ray_head_that_does_not_answer_is_told_and_no_study_is_begun(table, gradwise):
    said = gradwise("search", "flowers.csv", "--target", "kind", "--on", "ray://localhost:1", "--out", "mine")
    assert said.code in {1, 2}
    assert said.err.startswith("error: no Ray head answers at ray://localhost:1")
    assert said.err.count("\n") == 1
    assert [path.name for path in table.parent.iterdir()] == ["flowers.csv"]


@pytest.mark.slow
def test_a_locked_database_is_told_and_nothing_is_lost(table, gradwise, search_words, monkeypatch):
    import sqlite3

    from gradwise.searching.storage import backend

    words = ("--trials", "2", "--finalists", "0", "--no-report", "--quiet", "--store", "sqlite:///trials.db")
    assert gradwise(*search_words, *words, "--out", "mine").code == 0
    shutil.copy("trials.db", "before.db")
    monkeypatch.setattr(backend, "BUSY_SECONDS", 0.1)
    other = sqlite3.connect("trials.db")
    other.execute("BEGIN EXCLUSIVE")
    try:
        more = ("--trials", "3", "--store", "sqlite:///trials.db", "--on", "here")
        said = gradwise("search", "--out", "mine", "--resume", *more)
    finally:
        other.rollback()
        other.close()
    assert said.code == 2, said.err
    assert "another program is writing to it" in said.err
    assert said.err.count("\n") == 1
    assert Path("trials.db").read_bytes() == Path("before.db").read_bytes()
    assert gradwise("search", "--out", "mine", "--resume", *more, "--no-report").code == 0
