"""The surface of the command line, and the one boundary where errors become lines.

    gradwise fit houses.csv --target price
    gradwise search houses.csv --target price --budget 10min
    gradwise check houses.csv --target price
    gradwise predict runs/houses-20250101-120000 new.csv --out predicted.csv
    gradwise report runs/houses-20250101-120000

Here only typer is imported, so that `--help` comes at once. A command says what to do; it is done after typer has
finished, so that every error, typer's own included, meets the same boundary:

| what happened                              | exit | said on standard error          |
|--------------------------------------------|------|---------------------------------|
| the request was wrong                      | 2    | error: what, where, what to do  |
| the work failed (diverged, disk full, ...) | 1    | error: what, where, what to do  |
| Ctrl-C                                     | 130  | error: interrupted, ...         |
| a mistake in gradwise                      | 1    | its traceback                   |
"""

import errno
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Annotated, Any

import typer

from .. import __version__
from ..runtime.errors import RequestError, WorkError, nearest
from .options import arguments

Work = Callable[[], int]

app = typer.Typer(
    name="gradwise",
    help="Train neural networks by sound practice: one command, an honest error, a report.",
    add_completion=False,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        print(f"gradwise {__version__}")
        raise typer.Exit


@app.callback()
def _gradwise(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version and end.")
    ] = False,
) -> None: ...


@app.command(name="fit")
def _fit(
    data: arguments.FitData = None,
    target: arguments.Target = None,
    task: arguments.Task = None,
    drop: arguments.Drop = None,
    kind: arguments.Kind = None,
    group: arguments.Group = None,
    time: arguments.Time = None,
    weight: arguments.Weight = None,
    class_weight: arguments.ClassWeight = None,
    test: arguments.Test = None,
    unsupervised: arguments.Unsupervised = False,
    learner: arguments.Learner = None,
    pretrain: arguments.Pretrain = None,
    metric: arguments.Metric = None,
    folds: arguments.FitFolds = None,
    watch: arguments.Watch = None,
    seed: arguments.Seed = None,
    sets: arguments.Sets = None,
    config: arguments.Config = None,
    max_time: arguments.MaxTime = None,
    out: arguments.Out = None,
    resume: arguments.Resume = False,
    overwrite: arguments.Overwrite = False,
    checkpoint: arguments.Checkpoint = None,
    on: arguments.FitOn = None,
    dry_run: arguments.DryRun = False,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    no_report: arguments.NoReport = False,
) -> Work:
    """Train one network well: an honest test error, and a page that shows how it went."""
    given = {name: value for name, value in locals().items() if name not in {"config", "sets"}}

    def work() -> int:
        from .commands.fit import run_fit

        return run_fit(given, config, sets or [])

    return work


@app.command(name="search")
def _search(
    data: arguments.SearchData = None,
    target: arguments.Target = None,
    task: arguments.Task = None,
    drop: arguments.Drop = None,
    kind: arguments.Kind = None,
    group: arguments.Group = None,
    time: arguments.Time = None,
    weight: arguments.Weight = None,
    class_weight: arguments.ClassWeight = None,
    test: arguments.Test = None,
    unsupervised: arguments.Unsupervised = False,
    learner: arguments.Learner = None,
    budget: arguments.Budget = None,
    trials: arguments.Trials = None,
    strategy: arguments.Strategy = None,
    ranges: arguments.Ranges = None,
    sets: arguments.SearchSets = None,
    study: arguments.Study = None,
    metric: arguments.SearchMetric = None,
    seed: arguments.Seed = None,
    folds: arguments.SearchFolds = None,
    finalists: arguments.Finalists = None,
    seeds: arguments.Seeds = None,
    committee: arguments.Committee = None,
    nested: arguments.Nested = None,
    batch_size: arguments.BatchSize = None,
    merge: arguments.Merge = False,
    challenge: arguments.Challenge = None,
    compare: arguments.Compare = None,
    distribution: arguments.Distribution = None,
    out: arguments.Out = None,
    resume: arguments.Resume = False,
    overwrite: arguments.Overwrite = False,
    store: arguments.Store = None,
    name: arguments.Name = None,
    checkpoint: arguments.Checkpoint = None,
    on: arguments.SearchOn = None,
    dry_run: arguments.DryRun = False,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    no_report: arguments.NoReport = False,
) -> Work:
    """Search for the best network within a budget: no knob left but that, and an honest error of what was chosen."""
    given = {name_: value for name_, value in locals().items() if name_ not in {"study", "sets", "ranges"}}

    def work() -> int:
        begun = monotonic()  # a budget of time pays for the imports too
        from .commands.search import run_search

        return run_search(given, study, sets or [], ranges or [], begun)

    return work


@app.command(name="check")
def _check(
    data: arguments.CheckData = None,
    target: arguments.Target = None,
    task: arguments.Task = None,
    drop: arguments.Drop = None,
    kind: arguments.Kind = None,
    group: arguments.Group = None,
    time: arguments.Time = None,
    weight: arguments.Weight = None,
    test: arguments.Test = None,
    seed: arguments.Seed = None,
    sets: arguments.CheckSets = None,
    only: arguments.Only = None,
    out: arguments.Out = None,
    resume: arguments.Resume = False,
    overwrite: arguments.Overwrite = False,
    on: arguments.FitOn = None,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    no_report: arguments.NoReport = False,
) -> Work:
    """Find out what is wrong, where, and what to do next. Exit code 1 if an error is found."""
    given = {name: value for name, value in locals().items() if name != "sets"}

    def work() -> int:
        from .commands.check import run_check

        return run_check(given, sets or [])

    return work


@app.command(name="explain")
def _explain(
    code: arguments.Code,
) -> Work:
    """Explain a finding: what it means, how it is measured, what to do, when it is a false alarm."""

    def work() -> int:
        from .commands.check import run_explain

        return run_explain(code)

    return work


@app.command(name="predict")
def _predict(
    run: arguments.PredictRun,
    data: arguments.PredictData,
    out: arguments.PredictOut = "-",
    form: arguments.Form = None,
    probabilities: arguments.Probabilities = False,
    keep: arguments.Keep = None,
    quiet: arguments.PredictQuiet = False,
) -> Work:
    """Predict new rows with a trained network."""

    def work() -> int:
        from .commands.predict_and_report import run_predict

        return run_predict(run, data, out, form, probabilities, keep or [], quiet)

    return work


@app.command(name="report")
def _report(
    run: arguments.ReportRun,
    out: arguments.ReportOut = None,
    json: arguments.ReportJson = False,
) -> Work:
    """Write a run's report again: one self-contained page."""

    def work() -> int:
        from .commands.predict_and_report import run_report

        return run_report(run, out, json)

    return work


def _usage(problem: Any) -> str:
    """Typer's own complaint in our words: the option that was meant, and where the help is."""
    context: Any = getattr(problem, "ctx", None)
    where = context.command_path if context is not None else "gradwise"
    name = str(getattr(problem, "option_name", ""))
    if context is not None and type(problem).__name__ == "NoSuchOption":
        known = [option for parameter in context.command.params for option in parameter.opts if option.startswith("--")]
        return f"there is no option {name}.{nearest(name, known) or f' See {where} --help.'}"
    message = " ".join(problem.format_message().split()).rstrip(".")
    commands = getattr(getattr(context, "command", None), "commands", None)
    hint = f" See {where} --help."
    if commands and message.count("'") == 2:
        hint = nearest(message.split("'")[1], commands)
    return f"{message[:1].lower()}{message[1:]}{'' if message.endswith('?') else '.' + hint}"


def _out_of_memory(problem: BaseException) -> bool:
    return isinstance(problem, MemoryError) or (
        type(problem).__name__ in {"XlaRuntimeError", "JaxRuntimeError"} and "RESOURCE_EXHAUSTED" in str(problem)
    )


def _failure(problem: BaseException) -> tuple[int, str] | None:
    """The exit code and the line for an error, or None where it is a mistake in gradwise."""
    if isinstance(problem, RequestError):
        return 2, str(problem)
    if isinstance(problem, WorkError):
        return 1, str(problem)
    if hasattr(problem, "format_message"):  # click's errors, wherever typer keeps click
        return 2, _usage(problem)
    if isinstance(problem, KeyboardInterrupt):
        return 130, str(problem) or "interrupted. What was saved before is still there."
    if _out_of_memory(problem):
        return 1, "there is not enough memory. Use fewer rows or columns, a smaller network, or another machine."
    if isinstance(problem, RecursionError):
        return 2, "a file is nested too deeply to be read: it was not written by gradwise."
    if isinstance(problem, OSError) and problem.errno is not None:
        full = problem.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
        where = f" at {problem.filename}" if problem.filename else ""
        remedy = " Make room; what was saved before is still there." if full else ""
        return 1, f"{problem.strerror}{where}.{remedy}"
    return None


def _as_program() -> None:
    """What holds for a process of its own and not for a caller's: quiet libraries, streams that never choke."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # a user reads findings; what libraries deprecate is for developers
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def run_program(argv: Sequence[str] | None = None) -> int:
    """The program; returns its exit code. Nothing but its own mistakes leaves it as an exception."""
    if argv is None:
        _as_program()
        argv = sys.argv[1:]
    command = typer.main.get_command(app)
    try:
        work = command.main(args=list(argv) or ["--help"], prog_name="gradwise", standalone_mode=False)
        code = work() if callable(work) else int(work or 0)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python would complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except BaseException as problem:
        failure = _failure(problem)
        if failure is None:
            raise
        code, line = failure
        text = "".join(c if c.isprintable() else "\ufffd" for c in " ".join(line.split()))
        print(f"error: {text}", file=sys.stderr)
        return code


if __name__ == "__main__":
    sys.exit(run_program())
