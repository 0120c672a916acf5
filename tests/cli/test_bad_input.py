"""Bad input, one table: each request is refused with one line on standard error and leaves everything as it was."""

import dataclasses
import io
import json
import shutil
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.marks import parametrize_one_quick

FIT = ("fit", "flowers.csv", "--target", "kind")
TINY = ("--set", "model.widths=8", "--set", "stopping=Off", "--set", "stopping.epochs=3")
ROWS = "x,y\n" + "".join(f"{n},{'ab'[n % 2]}\n" for n in range(30))


@dataclasses.dataclass(frozen=True)
class Case:
    """A request, what lies about when it is made, and what the answer must say."""

    name: str
    words: tuple[str, ...]
    says: tuple[str, ...]
    files: dict[str, str | bytes] = dataclasses.field(default_factory=dict)
    prepare: Callable[[Path], object] = lambda here: None
    code: int = 2


def _table(name: str, content: str | bytes, *says: str, options: tuple[str, ...] = ("--target", "y")) -> Case:
    """A file that cannot be learned from."""
    return Case(name, ("fit", "bad.csv", *options), says, {"bad.csv": content})


def _option(name: str, options: tuple[str, ...], *says: str) -> Case:
    """Options that cannot be meant, with a table that is fine."""
    return Case(name, (*FIT, *options), says)


def _bytes_of(arrays: dict[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _with_head(here: Path, change: Callable[[dict], object]) -> None:
    """Writes the model file anew with another JSON text in its header."""
    path = here / "run" / "model.safetensors"
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    head = json.loads(header["__metadata__"]["gradwise"])
    changed = change(head)
    header["__metadata__"]["gradwise"] = changed if isinstance(changed, str) else json.dumps(head)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def _cut(here: Path, name: str, share: float = 0.5) -> None:
    path = here / "run" / name
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])


def _unfinish(here: Path) -> None:
    (here / "run" / "result.json").unlink()


def _chain(*steps: Callable[[Path], object]) -> Callable[[Path], None]:
    def all_of(here: Path) -> None:
        for step in steps:
            step(here)

    return all_of


RESUME = (*FIT, *TINY, "--out", "run", "--resume")
PREDICT = ("predict", "run", "flowers.csv")

CASES = [
    # What is asked for is not there, or is no table.
    Case("missing file", ("fit", "nothing.csv", "--target", "y"), ("no file nothing.csv",)),
    Case("misspelt file", ("fit", "flower.csv", "--target", "y"), ("Did you mean 'flowers.csv'?",)),
    Case("misspelt named set", ("fit", "iriss"), ("named set `iriss`", "Did you mean 'iris'?")),
    Case("folder as data", ("fit", ".", "--target", "y"), ("folder",)),
    Case("unknown ending", ("fit", "a.xyz", "--target", "y"), ("a.xyz", ".parquet"), {"a.xyz": ROWS}),
    _table("empty file", "", "bad.csv is empty"),
    _table("header only", "x,y\n", "a header row but no data rows"),
    _table("binary junk", bytes(range(256)) * 20, "binary data"),
    _table("wrong delimiter", "x y\n1 2\n3 4\n", "only one column", options=("--target", "y")),
    _table("ragged rows", ROWS + "1,2,3\n", "line 32", "3 values where the header has 2"),
    _table("open quotation mark", 'x,y\n"1,2\n' + "3,4\n" * 9, "quotation mark"),
    _table("duplicate columns", "x,x,y\n" + "1,2,3\n" * 9, "`x` appears 2 times"),
    _table("not UTF-8", ROWS.encode() + b"\xe9,a\n", "not UTF-8", "line 32"),
    _table("UTF-16", ROWS.encode("utf-16"), "UTF-16"),
    _table("three rows", "x,y\n1,a\n2,b\n3,a\n", "3 rows", "at least 5"),
    _table("infinite values", ROWS + "inf,a\n", "infinite"),
    _table("identifiers", "x,y\n" + "".join(f"id {n},{n % 2}\n" for n in range(30)), "an identifier", "--drop"),
    Case(
        "damaged gzip",
        ("fit", "a.csv.gz", "--target", "y"),
        ("damaged or truncated gzip",),
        {"a.csv.gz": b"\x1f\x8b" + zlib.compress(b"x")},
    ),
    Case(
        "damaged Parquet", ("fit", "a.parquet", "--target", "y"), ("not a valid Parquet",), {"a.parquet": b"PAR1junk"}
    ),
    Case("npz without X", ("fit", "a.npz"), ("no array `X`",), {"a.npz": _bytes_of({"Z": np.ones(9)})}),
    Case(
        "npz with objects",
        ("fit", "a.npz"),
        ("never unpickles",),
        {"a.npz": _bytes_of({"X": np.array([[{}]] * 9), "y": np.arange(9)})},
    ),
    Case("damaged npz", ("fit", "a.npz"), ("not a valid NumPy file",), {"a.npz": b"PK\x03\x04junk"}),
    Case(
        "npz of five dimensions",
        ("fit", "a.npz"),
        ("2 to 4 dimensions",),
        {"a.npz": _bytes_of({"X": np.ones((9, 1, 1, 1, 1)), "y": np.arange(9)})},
    ),
    # The target.
    Case("no target", ("fit", "flowers.csv"), ("--target", "`colour`")),
    _option("unknown column to drop", ("--drop", "lenght"), "Did you mean 'length'?"),
    Case("unknown target", ("fit", "flowers.csv", "--target", "kinds"), ("Did you mean 'kind'?",)),
    _option("target dropped", ("--drop", "kind"), "`kind` is given to both --target and --drop"),
    _table("target all one class", "x,y\n" + "".join(f"{n},a\n" for n in range(9)), "'a' in every row"),
    _table("target missing values", ROWS + "31,\n", "missing in 1 of 31 rows", "row 31"),
    _table("target infinite", "x,y\n" + "".join(f"{n},{n / 7}\n" for n in range(30)) + "1,inf\n", "infinite"),
    _option("words as numbers", ("--task", "numbers"), "not numbers"),
    _option("unknown task", ("--task", "guess"), "classes, labels, numbers"),
    _option("labels of words", ("--task", "labels"), "0 and 1"),
    # Columns and their roles.
    _option("unknown kind", ("--kind", "bed=fruit"), "number, category, date"),
    _option("kind without a column", ("--kind", "category"), "column=category"),
    _option("unknown group", ("--group", "beds"), "Did you mean 'bed'?"),
    _option("group and time", ("--group", "bed", "--time", "bed"), "--group and --time exclude each other"),
    _option("words as time", ("--time", "colour"), "--time colour"),
    _option("negative weights", ("--weight", "width"), "--weight width", "0 or more"),
    _option("unknown class weighted", ("--class-weight", "dan=2"), "'dan'", "not a class"),
    _option("odd class weights", ("--class-weight", "heavy"), "balanced"),
    _option("test set is the data", ("--test", "flowers.csv"), "both flowers.csv"),
    _option("test set missing", ("--test", "later.csv"), "no file later.csv"),
    Case(
        "test set without target",
        (*FIT, "--test", "t.csv"),
        ("t.csv", "kind"),
        {"t.csv": "length,width,colour,bed\n1,2,red,1\n"},
    ),
    Case(
        "test set with a new class",
        (*FIT, "--test", "t.csv"),
        ("'dan'",),
        {"t.csv": "length,width,colour,bed,kind\n1,2,red,1,dan\n"},
    ),
    # Options.
    _option("unknown option", ("--targte", "kind"), "unknown option --targte", "'--target'"),
    _option("option without value", ("--seed",), "--seed"),
    Case("unknown command", ("fitt", "iris"), ("'fitt'", "'fit'")),
    Case("too many arguments", ("fit", "iris", "wine"), ("wine",)),
    Case("no data", ("fit",), ("DATA",)),
    _option("negative seed", ("--seed", "-1"), "--seed -1", "from 0"),
    _option("seed of words", ("--seed", "luck"), "--seed luck"),
    _option("no time", ("--max-time", "banana"), "--max-time banana", "10min"),
    _option("no time at all", ("--max-time", "0"), "above 0"),
    _option("negative checkpoint", ("--checkpoint", "-1"), "--checkpoint -1"),
    _option("one fold", ("--folds", "1"), "--folds 1", "from 2"),
    _option("more folds than rows", ("--folds", "61", *TINY), "61 folds"),
    _option("folds in time", ("--folds", "3", "--time", "bed"), "--folds and --time exclude each other"),
    _option("unknown metric", ("--metric", "error"), "unknown metric `error` for classes", "error_rate"),
    _option("metric of another task", ("--metric", "rmse"), "unknown metric `rmse` for classes"),
    _option("unknown device", ("--on", "tpu"), "--on tpu", "cpu, gpu"),
    _option("no such device here", ("--on", "gpu"), "no GPU", "cpu"),
    _option("other machines", ("--on", "ray://head:10001"), "one device"),
    # Knobs.
    _option("unknown knob", ("--set", "optimiser.learning_rat=1"), "Did you mean 'optimiser.learning_rate'?"),
    _option("knob out of range", ("--set", "optimiser.learning_rate=-1"), "(0, inf)", "-1"),
    _option("knob of words", ("--set", "optimiser.learning_rate=fast"), "expected a number", "'fast'"),
    _option("no value", ("--set", "optimiser.learning_rate"), "path=value"),
    _option("unknown part", ("--set", "optimiser=Sdg"), "Did you mean 'Sgd'?"),
    _option("loss of another task", ("--set", "criterion.loss=GaussianLoss"), "GaussianLoss learns numbers"),
    _option("no memory", ("--set", "model.widths=1000000000000"), "parameters", "GiB", "model.widths"),
    _option("no width", ("--set", "model.widths=0"), "at least 1"),
    _option(
        "pattern that fits nothing",
        ("--set", "criterion.penalties.0.where=nix", "--set", "criterion.penalties.0.coefficient=1", *TINY),
        "'nix'",
    ),
    # Config files.
    _option("missing config", ("--config", "run.toml"), "run.toml", "no such file"),
    Case("config is no TOML", (*FIT, "--config", "run.toml"), ("not TOML",), {"run.toml": "[fit\n"}),
    Case("config not UTF-8", (*FIT, "--config", "run.toml"), ("not TOML",), {"run.toml": b"a = '\xe9'"}),
    Case(
        "config with an unknown option",
        (*FIT, "--config", "run.toml"),
        ("Did you mean 'seed'?",),
        {"run.toml": "[fit]\nsead = 1\n"},
    ),
    Case(
        "config with an unknown knob",
        (*FIT, "--config", "run.toml"),
        ("run.toml", "optimiser.learning_rate"),
        {"run.toml": "[optimiser]\nlearning_rat = 1\n"},
    ),
    Case(
        "config with a misplaced option",
        (*FIT, "--config", "run.toml"),
        ("`seed`", "[fit]"),
        {"run.toml": "seed = 1\n"},
    ),
    # The folder.
    _option(
        "resume and overwrite",
        ("--resume", "--overwrite", "--out", "run"),
        "--resume and --overwrite exclude each other",
    ),
    _option("resume nothing named", ("--resume",), "--out DIR"),
    _option("resume nothing there", ("--resume", "--out", "nowhere"), "no run at nowhere"),
    _option("folder exists", ("--out", "run"), "run already exists", "--overwrite"),
    _option("file in the folder's place", ("--out", "flowers.csv"), "flowers.csv is a file"),
    _option("folder under a file", ("--out", "flowers.csv/run"), "flowers.csv/run"),
    _option("folder that cannot be made", ("--out", "/proc/gradwise/run"), "/proc/gradwise/run"),
    Case(
        "damaged checkpoint",
        RESUME,
        ("checkpoint.safetensors is damaged", "--overwrite"),
        prepare=_chain(_unfinish, lambda here: _cut(here, "checkpoint.safetensors")),
    ),
    Case(
        "checkpoint is no checkpoint",
        RESUME,
        ("is damaged",),
        prepare=_chain(
            _unfinish,
            lambda here: shutil.copy(here / "run" / "model.safetensors", here / "run" / "checkpoint.safetensors"),
        ),
    ),
    Case("checkpoint of another run", (*RESUME, "--seed", "5"), ("belongs to another run",), prepare=_unfinish),
    Case(
        "finished run of another request",
        (*RESUME, "--seed", "5"),
        ("another run", "--seed 0"),
        prepare=lambda here: (here / "run" / "checkpoint.safetensors").unlink(),
    ),
    Case("damaged result", RESUME, ("is damaged",), prepare=lambda here: _cut(here, "result.json")),
    # Predictions.
    Case("predict without a run", ("predict", "nowhere", "flowers.csv"), ("no run at nowhere",)),
    Case(
        "predict with an empty folder",
        ("predict", "empty", "flowers.csv"),
        ("no model.safetensors",),
        prepare=lambda here: (here / "empty").mkdir(),
    ),
    Case("predict without data", ("predict", "run"), ("DATA",)),
    Case("predict missing file", ("predict", "run", "new.csv"), ("no file new.csv",)),
    Case(
        "predict missing columns",
        ("predict", "run", "new.csv"),
        ("`width`",),
        {"new.csv": "length,colour,bed\n1,red,1\n"},
    ),
    Case(
        "predict infinite",
        ("predict", "run", "new.csv"),
        ("infinite",),
        {"new.csv": "length,width,colour,bed\n1,inf,red,1\n"},
    ),
    Case("model truncated", PREDICT, ("damaged",), prepare=lambda here: _cut(here, "model.safetensors")),
    Case("model empty", PREDICT, ("damaged",), prepare=lambda here: _cut(here, "model.safetensors", 0)),
    Case("model is a table", ("predict", "flowers.csv", "flowers.csv"), ("damaged or not a model",)),
    Case(
        "header of 2**63 bytes",
        PREDICT,
        ("damaged",),
        prepare=lambda here: (here / "run" / "model.safetensors").write_bytes(struct.pack("<Q", 2**63) + b"{}"),
    ),
    Case(
        "class outside gradwise",
        PREDICT,
        ("`os:system` is not part of gradwise",),
        prepare=lambda here: _with_head(here, lambda head: head["network"].update({"class": "os:system"})),
    ),
    Case(
        "function by the back door",
        PREDICT,
        ("is not a part",),
        prepare=lambda here: _with_head(here, lambda head: head["network"].update({"class": "gradwise:from_json"})),
    ),
    Case(
        "import trick",
        PREDICT,
        ("model.safetensors",),
        prepare=lambda here: _with_head(
            here, lambda head: head.update({"network": {"class": "gradwise:__builtins__.__import__"}})
        ),
    ),
    Case(
        "module by the back door",
        PREDICT,
        ("does not exist",),
        prepare=lambda here: _with_head(here, lambda head: head["network"].update({"class": "gradwise:evil.Network"})),
    ),
    Case(
        "nested 100 000 deep", PREDICT, ("damaged",), prepare=lambda here: _with_head(here, lambda head: "[" * 100_000)
    ),
    Case(
        "network that is none",
        PREDICT,
        ("model.safetensors",),
        prepare=lambda here: _with_head(here, lambda head: head.update({"network": {"class": "gradwise:Adam"}})),
    ),
    Case(
        "model of another format",
        PREDICT,
        ("format 99",),
        prepare=lambda here: _with_head(here, lambda head: head.update({"format": 99})),
    ),
    Case("predict unknown format", (*PREDICT, "--format", "xml"), ("--format xml", "parquet")),
    Case("predict unknown ending", (*PREDICT, "--out", "new.xls"), ("new.xls", "--format")),
    Case("predict into a folder", (*PREDICT, "--out", "run", "--format", "csv"), ("run is a folder",)),
    Case("predict into no folder", (*PREDICT, "--out", "no/where.csv"), ("the folder no does not exist",)),
    Case("predict over its data", (*PREDICT, "--out", "flowers.csv"), ("would overwrite an input",)),
    Case("predict keeping what is not there", (*PREDICT, "--keep", "colur"), ("Did you mean 'colour'?",)),
    # Reports.
    Case("report without a run", ("report", "nowhere"), ("no run at nowhere",)),
    Case(
        "report of an unfinished run",
        ("report", "run"),
        ("not the folder of a finished run", "result.json"),
        prepare=_unfinish,
    ),
    Case(
        "report of a damaged history",
        ("report", "run"),
        ("is damaged",),
        prepare=lambda here: _cut(here, "history.parquet"),
    ),
    Case(
        "report of a hostile recipe",
        ("report", "run"),
        ("is not part of gradwise",),
        prepare=lambda here: (here / "run" / "recipe.json").write_text('{"class": "subprocess:Popen"}'),
    ),
    Case(
        "report of a deep recipe",
        ("report", "run"),
        ("is damaged",),
        prepare=lambda here: (here / "run" / "recipe.json").write_text("[" * 100_000),
    ),
]


def _snapshot(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_there_are_enough_cases():
    assert len(CASES) >= 45
    assert len({case.name for case in CASES}) == len(CASES)


@parametrize_one_quick("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_one_line_and_nothing_touched(case, a_run, here, gradwise):
    for name, content in case.files.items():
        (here / name).write_bytes(content.encode() if isinstance(content, str) else content)
    case.prepare(here)
    before = _snapshot(here)
    said = gradwise(*case.words)
    assert said.err.count("\n") == 1, said.err
    assert said.err.startswith("error: ")
    assert "Traceback" not in said.err
    for word in case.says:
        assert word.lower() in said.err.lower()
    assert said.code == case.code
    assert said.out == ""
    assert _snapshot(here) == before


def test_standard_input_is_named_in_errors(here, gradwise, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    said = gradwise("fit", "-", "--target", "y")
    assert (said.code, said.err) == (
        2,
        "error: standard input is empty: a table needs a header row and data rows.\n",
    )


def test_text_from_outside_cannot_move_the_cursor(here, gradwise):
    (here / "bad.csv").write_text("x,y\x1b[2J\n" + "1,2\n" * 9)
    said = gradwise("fit", "bad.csv", "--target", "z\x1b[2J\nerror: all is well")
    assert "\x1b" not in said.err
    assert said.err.count("\n") == 1


@parametrize_one_quick(
    ("words", "code", "says"),
    [
        (("fit", "nothing.csv", "--target", "y"), 2, "error: no file nothing.csv."),
        (("fit", "flowers.csv", "--target", "kind", "--targte", "x"), 2, "error: unknown option --targte."),
        (("predict", "nowhere", "flowers.csv"), 2, "error: no run at nowhere."),
    ],
)
def test_the_program_itself_says_the_same(words, code, says, table, program):
    process = program(*words, cwd=table.parent)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert err.startswith(says)
    assert err.count("\n") == 1
    assert out == ""
