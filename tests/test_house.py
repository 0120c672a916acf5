"""The rules of the house, held by reading its files: layers, names, sizes, the chapter's map, tests, no paths."""

import ast
import graphlib
import importlib
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gradwise
from gradwise.cli import commands
from gradwise.cli.main import run_program
from gradwise.journeys.data_and_recipe import resolve_for
from gradwise.journeys.requests.options import flag_of
from gradwise.journeys.requests.study_requests import SearchRequest
from gradwise.journeys.requests.training_requests import FitRequest
from gradwise.recipes import InputForm

ROOT = Path(__file__).resolve().parents[1]
HOUSE = ROOT / "gradwise"
FOUNDATION = ("runtime", "specs", "records", "tracing", "curvature")  # each imports what stands to its left
PARTS = {"data", "models", "criteria", "optimisers"}
LEARNING = {*FOUNDATION, *PARTS, "evaluation", "training"}
ENGINES = {*LEARNING, "pretraining", "searching", "checking", "language"}
BELOW = {*ENGINES, "tracking", "reporting", "exporting", "journeys"}
SHELLS = {"recipes", "defaults", "portfolio", "estimators", "testing", "cli"}

# What each room may import, besides itself.
LAYERS: dict[str, set[str]] = {
    **{room: set(FOUNDATION[:place]) for place, room in enumerate(FOUNDATION)},
    **{room: set(FOUNDATION) for room in (*PARTS, "evaluation")},
    "training": {*FOUNDATION, "evaluation"},
    "pretraining": LEARNING,
    "searching": {*LEARNING, "pretraining"},
    "checking": {*LEARNING, "pretraining"},
    "tracking": {"runtime", "specs", "records"},
    "reporting": {"runtime", "specs", "records", "evaluation"},
    "exporting": {*FOUNDATION, "data", "models", "criteria", "evaluation", "training"},
    "language": LEARNING,
    "recipes": LEARNING,
    "defaults": {*LEARNING, "pretraining", "recipes"},
    "portfolio": {*LEARNING, "defaults", "recipes"},
    "journeys": {*BELOW, "recipes", "defaults", "portfolio"},
    **dict.fromkeys(["estimators", "testing", "cli"], BELOW | SHELLS),
    "__init__": {"runtime"},
    "__main__": {"cli"},
}
# The version is a fact about the package, which every room may state; no other name of the root is for rooms below it.
FACTS = {"__version__"}
MOST_MODULES = 15  # in one folder
MOST_LINES = 400  # of a module
MOST_LINES_OF_A_FUNCTION = 60


def _files(folder: Path, pattern: str = "*.py") -> list[Path]:
    return sorted(path for path in folder.rglob(pattern) if "__pycache__" not in path.parts)


def _room(path: Path) -> str:
    first = path.relative_to(HOUSE).parts[0]
    return first.removesuffix(".py")


def _module(path: Path) -> str:
    words = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


def imported(source: str, package: list[str]) -> Iterator[str]:
    """Every module of ours that a source imports, at any depth; relative names resolved against its package."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            full = [*base, *(node.module or "").split(".")] if node.module else base
            for alias in node.names:
                yield ".".join([*full, alias.name])
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield from (str(given.value) for given in node.args[:1] if isinstance(given, ast.Constant))


def offences(source: str, package: list[str], room: str) -> list[str]:
    """The imports of a source that its room may not make."""
    found = []
    for name in imported(source, package):
        words = name.split(".")
        if words[0] != "gradwise":
            continue
        target = words[1] if len(words) > 1 else "the root"
        if target in FACTS or target == room or target in LAYERS[room]:
            continue
        if room in {"estimators", "testing", "cli"} and target not in BELOW:
            continue
        found.append(name)
    return found


def test_every_import_keeps_to_the_layers() -> None:
    found = []
    for path in _files(HOUSE):
        room = _room(path)
        assert room in LAYERS, f"the room {room} has no rule: say what it may import"
        package = list(path.relative_to(ROOT).parent.parts)
        found += [f"{path.relative_to(ROOT)}: {name}" for name in offences(path.read_text(), package, room)]
    assert found == []


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("runtime", "from gradwise.specs import knobs"),
        ("specs", "import gradwise.training.train"),
        ("specs", "from ..records.finding import Finding"),
        ("records", "from .. import data"),
        ("tracing", "from .. import fit"),
        ("data", "from ..models.mlp import Mlp"),
        ("models", "def late():\n    from ..optimisers.first_order.sgd import Sgd"),
        ("training", "from .. import defaults"),
        ("training", "if True:\n    from gradwise.data.scaling import Automatic"),
        ("training", "import importlib\nimportlib.import_module('gradwise.models.mlp')"),
        ("training", "from gradwise import Classifier"),
        ("reporting", "from ..training.train import train"),
        ("searching", "from ..checking.check import check"),
        ("reporting", "from ..journeys.fit import run_fit"),
        ("exporting", "from ..journeys.model import Model"),
        ("training", "from ..exporting.export import export_model"),
        ("journeys", "from ..cli.terminal.output import say"),
        ("criteria", "import gradwise"),
    ],
)
def test_a_forbidden_import_is_found(room: str, source: str) -> None:
    assert len(offences(source, ["gradwise", room], room)) == 1


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("specs", "from ..runtime.errors import RequestError\nfrom . import knobs\nimport numpy"),
        ("training", "from ..runtime import keys, memory\nfrom .. import __version__\nfrom . import checkpoint"),
        ("reporting", "from ..evaluation.curves import smooth"),
        ("cli", "from ..training.train import train\nfrom ..defaults import classification\nimport gradwise"),
    ],
)
def test_an_allowed_import_is_let_through(room: str, source: str) -> None:
    assert offences(source, ["gradwise", room], room) == []


def _imports() -> dict[str, set[str]]:
    """Each module of ours with those that it imports, late imports included."""
    modules = {_module(path): path for path in _files(HOUSE)}
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        for full in imported(path.read_text(), list(path.relative_to(ROOT).parent.parts)):
            target = full if full in modules else full.rpartition(".")[0]
            graph[name] |= {target} & set(modules) - {name}
    return graph


@pytest.mark.slow
def test_no_modules_import_one_another_in_a_circle() -> None:
    graphlib.TopologicalSorter(_imports()).prepare()  # raises with the circle, if there is one
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter({**_imports(), "gradwise.runtime.errors": {"gradwise.cli.main"}}).prepare()


def test_no_private_name_crosses_modules() -> None:
    found = []
    for path in _files(HOUSE):
        for name in imported(path.read_text(), list(path.relative_to(ROOT).parent.parts)):
            last = name.rpartition(".")[2]
            if name.startswith("gradwise.") and last.startswith("_") and last not in FACTS:
                found.append(f"{path.relative_to(ROOT)}: {name}")
    assert found == []


def test_no_two_public_classes_or_functions_share_a_name() -> None:
    homes = defaultdict(list)
    for path in _files(HOUSE):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(ROOT)))
    assert len(homes) > 1000
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_no_folder_is_crowded() -> None:
    counts: dict[str, int] = defaultdict(int)
    for path in _files(HOUSE):
        counts[str(path.parent.relative_to(ROOT))] += path.name != "__init__.py"
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_no_module_or_function_is_longer_than_can_be_held_in_the_head() -> None:
    long = []
    for path in _files(HOUSE):
        text, place = path.read_text(), path.relative_to(ROOT)
        long += [f"{place}"] if text.count("\n") > MOST_LINES else []
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
                tall = node.end_lineno - node.lineno + 1
                long += [f"{place}: {node.name}"] if tall > MOST_LINES_OF_A_FUNCTION else []
    assert long == []


def test_the_picture_of_the_layers_shows_the_imports_of_today() -> None:
    drawing = runpy.run_path(str(ROOT / "docs" / "draw_layers.py"))
    shown = re.search("<desc>(.*)</desc>", drawing["PICTURE"].read_text())
    assert shown is not None
    assert shown[1] == drawing["describe"](drawing["room_imports"]()), "run python docs/draw_layers.py"


def test_every_file_of_the_design_is_there() -> None:
    """The walk and the reasons name modules by their paths."""
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", (ROOT / "docs" / "design.md").read_text()))
    assert len(named) > 30
    assert [path for path in named if not (HOUSE / path).is_file() and not (ROOT / path).is_file()] == []


ADVICE = {"D1"}  # what the chapter recommends to begin with: a default and a range, with nothing to compute


def _chapter() -> list[dict[str, str]]:
    """The rows of the chapter's map, by the names of its columns."""
    lines = [line for line in (ROOT / "docs" / "chapter.md").read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    header = cells[0]
    assert {"row", "symbol", "test", "see it"} <= set(header)
    rows = [row for row in cells[1:] if not set("".join(row)) <= set("-: ")]
    assert all(len(row) == len(header) for row in rows)
    return [dict(zip(header, row, strict=True)) for row in rows if row != header]


def _quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def _symbol(name: str) -> object:
    """The thing of this dotted name, or an error that says where the name ends."""
    words = name.split(".")
    for end in range(len(words), 0, -1):
        try:
            found: object = importlib.import_module(".".join(words[:end]))
        except ModuleNotFoundError:
            continue
        for word in words[end:]:
            found = getattr(found, word)
        return found
    raise ModuleNotFoundError(name)


def _tests_in(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_the_chapter_map_has_rows_and_each_names_a_symbol_and_a_test() -> None:
    rows = _chapter()
    assert len(rows) >= 20
    for row in rows:
        assert re.fullmatch(r"[A-J]\d+", row["row"]), row
        assert _quoted(row["symbol"]), row
        assert _quoted(row["test"]), row


def test_every_row_of_the_chapter_says_how_strong_its_proof_is() -> None:
    """A row of the chapter, of which most have several lines here, is done only if one line is more than smoke."""
    strong: dict[str, bool] = defaultdict(bool)
    for row in _chapter():
        assert row["proof"] in ("oracle", "published", "experiment", "smoke"), row
        strong[row["row"]] |= row["proof"] != "smoke"
    assert [row for row, proved in strong.items() if not proved and row not in ADVICE] == []


def test_every_symbol_of_the_chapter_map_exists() -> None:
    missing = []
    for row in _chapter():
        for name in _quoted(row["symbol"]):
            assert name.startswith("gradwise"), name
            try:
                _symbol(name)
            except (ModuleNotFoundError, AttributeError):
                missing.append(name)
    assert missing == []


def test_every_test_of_the_chapter_map_exists() -> None:
    missing = []
    for row in _chapter():
        for name in _quoted(row["test"]):
            file, _, function = name.partition("::")
            function = function.rpartition("::")[2].partition("[")[0]
            path = ROOT / file
            if not path.is_file() or (function and function not in _tests_in(path)):
                missing.append(name)
    assert missing == []


def _quick_tests_in(path: Path) -> set[str]:
    """The tests of a file that `make test` runs."""
    tests = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    slow = "pytest.mark.slow"
    return {test.name for test in tests if not any(slow == ast.unparse(mark) for mark in test.decorator_list)}


def test_every_row_of_the_chapter_is_proved_by_a_quick_test() -> None:
    quick: dict[str, bool] = defaultdict(bool)
    for row in _chapter():
        for name in _quoted(row["test"]):
            file, _, function = name.partition("::")
            function = function.rpartition("::")[2].partition("[")[0]
            found = _quick_tests_in(ROOT / file)
            quick[row["row"]] |= function in found if function else any(one.startswith("test_") for one in found)
    assert len(quick) > 80
    assert [row for row, proved in quick.items() if not proved] == []


# What a cell may name beside commands and names of gradwise: files of a run, their columns, words of a report.
SHOWN = {
    "study.toml",
    "result.json",
    "history.parquet",
    "effort.json",
    "short_runs",
    "learning_rate",
    "behind",
    "model.widths",
}
SHOWN |= {"pseudo_likelihood", "model.history", "optuna-dashboard study.journal", "mean_field", "bound", "sample"}
NAMED = (
    "missing argument",
    "is missing",
    "nothing to check",
    "--resume needs",
    "No such file",
    "has no folder",
    "does not exist",
)


def test_every_row_of_the_chapter_says_how_to_see_it() -> None:
    assert [f"{row['row']} {row['what']}" for row in _chapter() if not row["see it"]] == []


def _shown() -> list[str]:
    return sorted({piece for row in _chapter() for piece in _quoted(row["see it"])})


def test_what_the_chapter_names_exists() -> None:
    """Names of gradwise, scripts and links; an expression begins with a name of gradwise."""
    missing = []
    for piece in _shown():
        if piece.startswith(("gradwise ", "--")) or piece in SHOWN:
            continue
        script = re.fullmatch(r"(?:python )?((?:examples|benchmarks|gradwise)/[\w.]+)(?: .*)?", piece)
        names = re.findall(r"\b(?:gw|gradwise)\.([A-Za-z_][\w.]*)", piece) or re.findall(r"^(\w+)\(", piece)
        if script:
            missing += [] if (ROOT / script[1]).is_file() else [piece]
            continue
        for name in names:
            try:
                _symbol(f"gradwise.{name}")
            except (ModuleNotFoundError, AttributeError):
                missing.append(piece)
        missing += [] if names else [piece]
    assert missing == []
    links = {link for row in _chapter() for link in re.findall(r"\]\(([^)]+)\)", row["see it"])}
    for link in links:
        page, _, place = link.partition("#")
        titles = re.findall(r"^#+ (.*)$", (ROOT / "docs" / page).read_text(), re.M)
        slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
        assert not place or place in slugs, link


def _command(piece: str) -> list[str]:
    """The words of a command; options alone belong to `gradwise fit digits`, or to a search if a fit lacks them."""
    words = shlex.split(piece.replace("…", "digits"))
    if words[0] == "gradwise":
        return words[1:]
    known = {word for word in words if word.startswith("--")}
    of_fit = {flag_of(name) for name in FitRequest.options()}
    return ["fit" if known <= of_fit else "search", "digits", *words]


def test_the_command_line_accepts_what_the_chapter_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the real parser; and the recipe that a fit or a search would begin with is made, as `--set` says."""
    monkeypatch.chdir(tmp_path)

    def resolve(request: Any, begun: float) -> int:
        if isinstance(request, FitRequest | SearchRequest) and request.set:
            kind = "inputs" if request.learns_inputs else "numbers" if request.target else "classes"
            form = InputForm("table", 500) if str(request.data).endswith(".csv") else InputForm()
            resolve_for(request, kind, form=form)
        return 0

    monkeypatch.setattr(commands, "run_command", resolve)
    refused = []
    for piece in _shown():
        if piece.startswith(("gradwise ", "--")):
            code, said = run_program(_command(piece)), capsys.readouterr().err
            refused += [] if code == 0 or any(reason in said for reason in NAMED) else [f"{piece}: {said}"]
    assert refused == []


def test_every_public_name_can_be_imported() -> None:
    assert len(gradwise.__all__) == len(set(gradwise.__all__))
    for name in gradwise.__all__:
        assert getattr(gradwise, name) is not None
    assert set(dir(gradwise)) == set(gradwise.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = gradwise.nothing


def test_every_module_opens_with_its_idea() -> None:
    for path in _files(HOUSE):
        idea = ast.get_docstring(ast.parse(path.read_text()))
        assert idea, path
        assert idea.splitlines()[0].strip(), path


def test_every_file_and_name_that_a_docstring_points_at_is_there() -> None:
    """A module that moves takes along what points at it: `search.py`, `training/train.py`, `specs.paths.replace`."""
    modules = [str(path.relative_to(HOUSE)) for path in _files(HOUSE)]
    rooms = "|".join(sorted(BELOW | SHELLS))
    missing = []
    for path in [*_files(HOUSE), *_files(HOUSE, "*.md")]:
        for name in re.findall(r"`((?:\w+/)*\w+\.py)`", path.read_text()):
            found = any(module == name or module.endswith(f"/{name}") for module in modules)
            missing += [] if found else [f"{path.relative_to(ROOT)}: {name}"]
        for name in re.findall(rf"`(?:gradwise\.)?((?:{rooms}|core|analysis)(?:\.\w+)+)`", path.read_text()):
            if not name.endswith(".py"):
                try:
                    _symbol(f"gradwise.{name}")
                except (ModuleNotFoundError, AttributeError):
                    missing.append(f"{path.relative_to(ROOT)}: {name}")
    assert missing == []


def test_importing_gradwise_costs_nothing() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import gradwise; "
        "print([name for name in ('jax', 'sklearn', 'pandas', 'matplotlib', 'scipy', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(ROOT)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


# Inner rooms: modules that are reached through one door alone, and proved by the tests of that door.
DOORS = {
    "checking/batch_access.py": "checking/test_subject.py",
    "cli/commands.py": "cli/test_main.py",
    "cli/terminal/check.py": "journeys/test_check.py",
    "data/column_statistics.py": "data/test_scaling.py",
    "data/fitted_scalers.py": "data/test_scaling.py",
    "data/reading/columns.py": "data/reading/test_read.py",
    "data/reading/delimited.py": "data/reading/test_read.py",
    "data/reading/files.py": "data/reading/test_read.py",
    "data/reading/tables.py": "data/reading/test_read.py",
    "data/reading/words_and_dates.py": "data/reading/test_read.py",
    "exporting/array_program.py": "exporting/test_primitives.py",
    "exporting/gathers_and_windows.py": "exporting/test_primitives.py",
    "exporting/numpy_expressions.py": "exporting/test_primitives.py",
    "exporting/numpy_module.py": "exporting/test_export.py",
    "exporting/onnx_graph.py": "exporting/test_primitives.py",
    "exporting/onnx_model.py": "exporting/test_export.py",
    "exporting/plain_functions.py": "exporting/test_primitives.py",
    "exporting/stablehlo.py": "exporting/test_export.py",
    "exporting/translation.py": "exporting/test_primitives.py",
    "exporting/whole_predictor.py": "exporting/test_export.py",
    "data/reading/at_hand.py": "journeys/test_front_door.py",
    "journeys/data_and_recipe.py": "journeys/test_fit.py",
    "journeys/requests/given.py": "journeys/test_front_door.py",
    "journeys/shown.py": "journeys/test_model.py",
    "specs/flax_models.py": "journeys/test_front_door.py",
    "journeys/folders/merge.py": "journeys/test_comparison.py",
    "journeys/progress.py": "journeys/test_fit.py",
    "journeys/progress_displays.py": "journeys/test_progress_bar.py",
    "journeys/folders/study_folder.py": "journeys/test_search.py",
    "records/evidence/verdict.py": "checking/verdict/test_verdict.py",
    "reporting/blocks.py": "reporting/test_html.py",
    "reporting/captioned_figures/data_figures.py": "reporting/captioned_figures/test_check_figures.py",
    "reporting/captioned_figures/record_values.py": "reporting/captioned_figures/test_check_figures.py",
    "reporting/plots/axes.py": "reporting/plots/test_run_plots.py",
    "reporting/plots/style.py": "reporting/plots/test_run_plots.py",
    "searching/running/jobs.py": "searching/running/test_run_jobs.py",
    "searching/running/ray_connection.py": "searching/running/test_ray_cluster.py",
    "searching/strategies/contract.py": "searching/strategies/test_random_search.py",
    "records/evidence/recorded_flow.py": "tracing/test_flow_monitor.py",
    "testing/spec_contracts.py": "testing/test_contracts.py",
    "training/model_files.py": "training/test_predictor.py",
}


def test_every_module_has_a_test_of_its_name() -> None:
    missing = []
    for path in _files(HOUSE):
        place = path.relative_to(HOUSE)
        if path.name in {"__init__.py", "__main__.py"}:
            continue
        own = ROOT / "tests" / place.parent / f"test_{path.name}"
        door = ROOT / "tests" / DOORS.get(str(place), "nowhere")
        if not own.is_file() and not door.is_file():
            missing.append(str(place))
    assert missing == []
    assert [place for place in DOORS if not (HOUSE / place).is_file()] == []


LEFT_OUT = {"venv", "runs", "dist", "build", "__pycache__"}  # what is made, never written
WRITTEN = {".py", ".md", ".toml", ".txt", ".json", ".cfg", ".yml", ".yaml", ".html", ".css", ".js", ".sh", ""}
# Written in pieces, so that this file does not name them either.
HOSTS = [
    *("py" + "pi.org", "python" + "hosted.org", "ana" + "conda.org", "npm" + "js.com", "npm" + "js.org"),
    *("download.py" + "torch.org", "nvidia" + ".com/compute", "crates" + ".io", "--extra-" + "index-url"),
]
PLACES = re.compile(r"(?<![\w.:/])(?:/(?:work|home|root|Users|mnt|srv)/[\w.-]+|/tmp/[\w.-]+|[A-Z]:\\Users\\)")


def _texts() -> Iterator[tuple[Path, str]]:
    for path in sorted(ROOT.rglob("*")):
        place = path.relative_to(ROOT)
        hidden = any(part in LEFT_OUT or (part[0] == "." and part not in {".ci", ".gitignore"}) for part in place.parts)
        if path.is_file() and not hidden and path.suffix in WRITTEN:
            yield place, path.read_text(errors="replace")


def test_no_file_names_a_package_registry() -> None:
    found = [(str(place), host) for place, text in _texts() for host in HOSTS if host in text]
    assert found == []


def test_no_file_names_a_place_on_a_machine() -> None:
    found = [(str(place), match.group()) for place, text in _texts() for match in PLACES.finditer(text)]
    assert found == []


@pytest.mark.parametrize("text", ["see /wo" + "rk/main", "'/ho" + "me/ann/x'", "C:" + "\\Users\\ann", "/tm" + "p/gw/v"])
def test_a_place_on_a_machine_is_found(text: str) -> None:
    assert PLACES.search(text)


@pytest.mark.parametrize(
    "text", ["docs.example.org/ho" + "me/x", "runs/wo" + "rk/x", "/proc/meminfo", "/sys/fs/cgroup"]
)
def test_what_is_no_place_on_a_machine_is_let_through(text: str) -> None:
    assert not PLACES.search(text)


def test_the_version_is_told_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == gradwise.__version__


def test_examples_and_documents_import_at_most_one_level_below_gradwise() -> None:
    texts = [*_files(ROOT / "examples"), ROOT / "README.md", *_files(ROOT / "docs", "*.md")]
    deep = re.compile(r"(?:from|import) (gradwise(?:\.\w+){2,})")
    assert deep.findall("from gradwise.models.mlp import Mlp") == ["gradwise.models.mlp"]
    found = {f"{path.name}: {name}" for path in texts for name in deep.findall(path.read_text())}
    assert found == set()
