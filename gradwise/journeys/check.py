"""`gw.check` and `gradwise check`: what is wrong, where, and what to do next.

    gw.check(loss, model, batch)                     your own loss: Equinox, Flax NNX, plain pytrees
    gw.check(frame, target="price")                  data, and what `gw.fit` would train on them
    gradwise check digits                            the data, and what `fit` would train on them
    gradwise check mypackage.module:make_problem     your own loss, model and batch
    gradwise check runs/digits-20250101-120000       a finished run, from its record

`make_problem()` returns `(loss, model, batch)`, or a dictionary of the arguments of `gradwise.check`, or
`(recipe, dataset)`. The exit code is 1 if an error was found.
"""

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..records.check import FILE as CHECK
from ..records.check import Checked, write_checked
from ..records.finding import Finding
from ..records.fit import Fit
from ..records.fit import read_fit as read_run
from ..records.study_files import is_study
from ..runtime import keys
from ..runtime.errors import RequestError, nearest
from ..specs.dataset import Dataset
from ..specs.recipe import Recipe
from .data_and_recipe import read_data, start_device
from .folders import run_folder as folders
from .model import Model
from .progress import SILENT, AbstractProgress
from .progress_bar import progress_here
from .requests.given import arguments_named, python_request
from .requests.options import DATA, flag_of
from .requests.training_requests import CheckRequest, FitRequest
from .shown import Shown

_OWN = re.compile(r"(?P<module>[^:]+):(?P<name>\w+)")
_FILE = re.compile(r"(?P<file>.+\.py)(:.*)?")  # a Python file, whatever follows it
_LISTED = 12  # names in a line
_SHOWN = 8  # findings in a short text
_MAKES = "returns (loss, model, batch), a dictionary of the arguments of gradwise.check, or (recipe, dataset)"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")


def _check_named(text: str) -> None:
    """Rejects a Python file without the name of a function; the file is parsed, not run."""
    found = _FILE.fullmatch(text)
    if found is None or _OWN.fullmatch(text):
        return
    path = Path(found["file"])
    if not path.is_file():
        raise RequestError(f"{text}: file {path} not found.")
    try:
        body = ast.parse(path.read_bytes(), str(path)).body
    except (SyntaxError, ValueError) as problem:
        where = f" (line {problem.lineno})" if isinstance(problem, SyntaxError) and problem.lineno else ""
        raise RequestError(f"{path} is not valid Python: {problem.args[0]}{where}.") from None
    names = [one.name for one in body if isinstance(one, ast.FunctionDef) and not one.name.startswith("_")]
    told = f"the file defines {_listed(names)}" if names else "the file defines none; write one"
    raise RequestError(f"{text}: name a function, {path}:FUNCTION, that takes no arguments and {_MAKES}; {told}.")


def _load(text: str) -> Callable[..., Any]:
    """The function that `module:function` or `file.py:function` names."""
    found = _OWN.fullmatch(text)
    assert found is not None
    name, attribute = found["module"], found["name"]
    path = Path(name)
    sys.path.insert(0, str((path.parent if path.suffix == ".py" else Path()).resolve()))
    try:
        if path.suffix == ".py":
            if not path.is_file():
                raise RequestError(f"{text}: file {path} not found.")
            described = importlib.util.spec_from_file_location(path.stem, path)
            assert described is not None
            assert described.loader is not None
            module = importlib.util.module_from_spec(described)
            sys.modules[path.stem] = module
            described.loader.exec_module(module)
        else:
            module = importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name and not name.startswith(problem.name):
            raise RequestError(f"{text} needs the package `{problem.name}`, which is not installed.") from None
        raise RequestError(
            f"{text}: module `{name}` not found. Run the command from its folder, or name its file: "
            f"path/to/file.py:{attribute}."
        ) from None
    except RequestError:
        raise
    except Exception as problem:
        from ..checking.subject import describe_user_error

        raise RequestError(f"{text} could not be imported: {describe_user_error(problem)}") from problem
    function = getattr(module, attribute, None)
    if not callable(function):
        callables = {key: value for key, value in vars(module).items() if callable(value) and not key.startswith("_")}
        own = [key for key, value in callables.items() if getattr(value, "__module__", None) == module.__name__]
        near = nearest(attribute, own or callables) or f" It defines {_listed(own)}." * bool(own)
        raise RequestError(f"`{name}` has no function `{attribute}`.{near}")
    return function


def _needed(function: Callable[..., Any]) -> list[str]:
    """The required arguments of the function."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C: calling it will tell
        return []
    optional = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    return [one.name for one in parameters if one.default is one.empty and one.kind not in optional]


def _made(text: str) -> dict[str, Any]:
    """The problem that the user's function returns, as the arguments of `check`."""
    from ..checking.subject import Subject, describe_user_error

    function = _load(text)
    needed = _needed(function)
    if needed:
        raise RequestError(
            f"{text} must take no arguments, but requires {_listed(needed)}: give them defaults, or name a function "
            f"that {_MAKES}."
        )
    try:
        made = function()
    except Exception as problem:
        raise RequestError(f"{text} failed: {describe_user_error(problem)}") from problem
    if isinstance(made, Mapping):
        return dict(made)
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], Recipe) and isinstance(made[1], Dataset):
        return {"loss": made[0], "model": made[1]}
    if isinstance(made, tuple) and len(made) == 3:
        return dict(zip(("loss", "model", "batch"), made, strict=True))
    if isinstance(made, Subject):
        return {"loss": made}
    raise RequestError(f"{text} returned a {type(made).__name__}. It must return {_MAKES.removeprefix('returns ')}.")


def _check_own(options: CheckRequest, keeping: Any) -> Checked:
    from ..checking.check import check_problem

    made = _made(options.data)
    if "loss" not in made:
        raise RequestError(f"{options.data}: the dictionary has no `loss`.")
    arguments = {"key": keys.from_seed(options.seed), **made, "keeping": keeping}
    arguments |= {name: getattr(options, name) for name in ("only", "select", "ignore") if getattr(options, name)}
    try:
        return check_problem(**arguments)
    except RequestError as problem:
        raise RequestError(f"{options.data}: {problem}") from None


def _is_run(text: str) -> bool:
    return (Path(text) / folders.RESULT).is_file()


def _is_own(text: str) -> bool:
    return _OWN.fullmatch(text) is not None and not Path(text).exists()


def _name(options: CheckRequest) -> str:
    if _is_own(options.data):
        return re.sub(r"\W+", "-", options.data.rpartition(":")[2]) + "-check"
    return f"{options.name_of_data}-check"


def _training_command(options: CheckRequest, changes: tuple[str, ...]) -> str:
    """The `gradwise fit` that trains what was checked."""
    return FitRequest(**{one.name: getattr(options, one.name) for one in dataclasses.fields(FitRequest)}).command(
        changes
    )


def _about_data(options: CheckRequest) -> list[str]:
    """The given options for reading data."""
    return [flag_of(name) for name, one in options.options().items() if one.panel == DATA and getattr(options, name)]


def _check_folder(text: str) -> None:
    """Rejects the folder of a check or a study, and says how to view it."""
    from ..checking.check import PARTIAL

    folder = Path(text)
    if is_study(folder):
        raise RequestError(f"{text} contains a study, not a run; view its report: {_report_command(text)}")
    if _is_run(text):
        return
    if (folder / CHECK).is_file():
        page = folder / "report.html"
        see = f"open {page}" if page.is_file() else f"write its page with {_report_command(text)}"
        raise RequestError(f"{text} contains a check, not a run: {see}, or name what to check.")
    if (folder / PARTIAL).is_file():
        raise RequestError(f"{text} contains an interrupted check: name what was checked, with --out {text} --resume.")


def _report_command(text: str) -> str:
    return shlex.join(["gradwise", "report", text])


def _work(options: CheckRequest, folder: Path | None, progress: AbstractProgress) -> Checked:
    from ..checking.check import CheckRunOptions, check_recipe, check_record

    if options.given.data is None:
        _check_named(options.data)
        _check_folder(options.data)
    given = ["--set"] * bool(options.set) + _about_data(options)
    if options.given.data is None and _is_run(options.data):
        unused = given + ["--only"] * bool(options.only)
        if unused:
            raise RequestError(
                f"{unused[0]} has no effect on {options.data}, a finished run, which is checked from its record: "
                "omit it, or check the data."
            )
        return check_record(read_run(Path(options.data)), select=options.select, ignore=options.ignore)
    keeping = CheckRunOptions(folder, options.resume, lambda name: progress.phase(f"checking: {name}"))
    if options.given.data is None and _is_own(options.data):
        if given:
            does = "sets knobs of a recipe" if options.set else "controls how a data file is read"
            raise RequestError(f"{given[0]} {does}, which your own problem does not have: omit it.")
        start_device(options.on)
        return _check_own(options, keeping)
    progress.phase(f"reading {options.data}")
    dataset, resolved = read_data(options)
    start_device(options.on)
    return check_recipe(
        resolved.recipe,
        dataset,
        key=keys.from_seed(options.seed),
        only=options.only,
        select=options.select,
        ignore=options.ignore,
        keeping=keeping,
        command=_training_command(options, resolved.changes),
    )


def _interrupted(options: CheckRequest, folder: Path) -> str:
    """What Ctrl-C left behind, and how to resume."""
    from ..checking.check import PARTIAL

    if not (folder / PARTIAL).is_file():
        return "interrupted before any check finished: nothing was saved; start again without --resume."
    told = options.command(tuple(f"{path}={value}" for path, value in options.set.items()))
    more = ["--out", str(folder), "--resume", *(["--on", options.on] if options.on else [])]
    return f"interrupted; finished checks are saved. Resume with: {told} {shlex.join(more)}"


def run_check(options: CheckRequest, progress: AbstractProgress = SILENT) -> folders.Written[Checked]:
    """Checks, and writes the findings to a folder, with their report unless it is turned off."""
    folder = folders.choose_folder(options.out, _name(options), options.resume, options.overwrite)
    if _is_run(str(folder)):
        raise RequestError(f"--out {folder} contains a run, which a check would overwrite: choose another folder.")
    new = folders.make(folder)
    try:
        record = _work(options, folder, progress)
        write_checked(record, folder)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_interrupted(options, folder)) from None
    finally:
        folders.remove_empty(new)
    if options.no_report:
        (folder / "report.html").unlink(missing_ok=True)  # that of an earlier check
    else:
        from ..reporting.report import write_report

        progress.phase("writing the report")
        write_report(folder, record)
    return folders.Written(record, folder)


@dataclasses.dataclass(frozen=True, repr=False)
class CheckResult(Shown):
    """What a check found: the verdict in a sentence, the findings worst first, and what to do next."""

    record: Checked
    kind = "check"

    @property
    def verdict(self) -> str:
        """What is wrong, in one sentence."""
        return self.record.verdict

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything that was found, worst first."""
        return self.record.findings

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are errors."""
        return self.record.errors

    @property
    def remedies(self) -> tuple[str, ...]:
        """What to do next, in order."""
        return self.record.remedies

    @property
    def passed(self) -> bool:
        """Whether no error was found."""
        return self.record.passed

    def coded(self, code: str) -> tuple[Finding, ...]:
        """The findings with this code, such as GW102."""
        return self.record.coded(code)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Writes the folder that `gradwise check --out` would have written, with its report."""
        folder = Path(path)
        if folder.exists() and not overwrite:
            raise RequestError(f"{folder} already exists: choose another folder, or replace it with overwrite=True.")
        folders.make(folder)
        write_checked(self.record, folder)
        self.report(folder / "report.html")
        return folder

    def __str__(self) -> str:
        return str(self.record)

    def _lines(self) -> list[str]:
        serious = [f"{one.level} {one.code}: {one.what}" for one in self.findings if one.level != "note"]
        counts = [sum(one.level == level for one in self.findings) for level in ("error", "warning", "note")]
        counted = "errors: {}, warnings: {}, notes: {}".format(*counts)
        return [
            f"gradwise check, {self.record.subject}: {self.verdict}",
            *serious[:_SHOWN],
            f"{counted}; print shows all",
        ]


def _is_problem(thing: Any) -> bool:
    """Whether a check is asked for code or a record, rather than for data."""
    from ..checking.subject import Subject

    return isinstance(thing, Recipe | Fit | Subject) or (callable(thing) and not hasattr(thing, "columns"))


def check(
    loss: Any,
    model: Any = None,
    batch: Any = None,
    *,
    seed: int = 0,
    only: str | Sequence[str] = (),
    select: str | Sequence[str] = (),
    ignore: str | Sequence[str] = (),
    progress: bool | None = None,
    **more: Any,
) -> CheckResult:
    """Finds out what is wrong with a loss, with data, or with a training.

    `check(loss, model, batch)` tests any loss of yours; `more` describes its training: `apply`, `evaluate`, `train`,
    `valid`, `test`, `batches`, `optimiser`, `frozen`, `task`, `columns`. `check(data, targets, target=..., ...)` tests
    data and what `gw.fit` would train on them, with its arguments. `check(model)` judges what `gw.fit` returned, and
    `check(recipe, dataset)` what a recipe would train.

    `only` names the checks to run; `select` and `ignore` name the findings to report, by code or by the beginning of
    one ("GW2").
    """
    names = {"only": only, "select": select, "ignore": ignore}
    if isinstance(loss, Model):
        if not isinstance(loss.record, Fit):
            raise RequestError("a search has no single training to check: see the findings in its report.")
        loss = loss.record
    with arguments_named(), progress_here(progress) as shown:
        if _is_problem(loss):
            from ..checking.check import CheckRunOptions, check_problem

            keeping = more.pop("keeping", CheckRunOptions(watch=lambda name: shown.phase(f"checking: {name}")))
            key = more.pop("key", None)
            key = keys.from_seed(seed) if key is None else key
            return CheckResult(check_problem(loss, model, batch, key=key, keeping=keeping, **names, **more))
        if batch is not None:
            raise RequestError("a batch goes with a loss and its model: gw.check(loss, model, batch).")
        options = {**{name: value or None for name, value in names.items()}, "seed": seed, **more}
        request = python_request(CheckRequest, loss, model, options)
        return CheckResult(_work(request, None, shown) if request.out is None else run_check(request, shown).record)
