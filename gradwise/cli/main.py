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
from typing import Annotated, Any

import typer

from .. import __version__
from ..runtime.errors import RequestError, WorkError, nearest
from .options import shared_options
from .options.shared_options import QUESTION, RUN, SEARCH, TRAIN, shared

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
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="A file (.csv .tsv .parquet .npz .npy .svm .idx, .gz too), a named set (digits, iris, ...), or - .",
        ),
    ] = None,
    target: shared_options.Target = None,
    task: shared_options.Task = None,
    drop: shared_options.Drop = None,
    kind: shared_options.Kind = None,
    group: shared_options.Group = None,
    time: shared_options.Time = None,
    weight: shared_options.Weight = None,
    class_weight: shared_options.ClassWeight = None,
    test: shared_options.Test = None,
    unsupervised: Annotated[
        bool, shared("--unsupervised", panel=TRAIN, help="Learn features of the inputs; look at no target.")
    ] = False,
    learner: Annotated[
        str | None,
        shared(
            "--learner",
            panel=TRAIN,
            metavar="KIND:UNITS",
            help="How to learn features: denoising, plain, rbm, ... Default: denoising:256.",
        ),
    ] = None,
    pretrain: Annotated[
        str | None,
        shared(
            "--pretrain",
            panel=TRAIN,
            metavar="LAYERS",
            help="Learn layers first, then train them together: denoising:1000x3, or rbm:500,denoising:250.",
        ),
    ] = None,
    metric: shared_options.Metric = None,
    folds: Annotated[
        str | None, shared("--folds", panel=TRAIN, metavar="K", help="Estimate by k-fold cross-validation too.")
    ] = None,
    watch: Annotated[
        str | None,
        shared(
            "--watch",
            panel=TRAIN,
            metavar="UPDATES",
            help="Record what flows through the layers every so many updates, for the report: 100.",
        ),
    ] = None,
    seed: shared_options.Seed = None,
    sets: shared_options.Sets = None,
    config: Annotated[
        str | None,
        shared(
            "--config", panel=TRAIN, metavar="FILE", help="A TOML file: a table fit for options, one for each part."
        ),
    ] = None,
    max_time: Annotated[
        str | None, shared("--max-time", panel=RUN, metavar="TIME", help="Train no longer than this: 90s, 10min, 2h.")
    ] = None,
    out: shared_options.Out = None,
    resume: shared_options.Resume = False,
    overwrite: shared_options.Overwrite = False,
    checkpoint: Annotated[
        str | None,
        shared("--checkpoint", panel=RUN, metavar="SECONDS", help="Time between checkpoints. Default: 10."),
    ] = None,
    on: Annotated[
        str | None, shared("--on", panel=RUN, metavar="DEVICE", help="cpu or gpu. Default: the best there is.")
    ] = None,
    dry_run: shared_options.DryRun = False,
    json: shared_options.Json = False,
    quiet: shared_options.Quiet = False,
    no_report: shared_options.NoReport = False,
) -> Work:
    """Train one network well: an honest test error, and a page that shows how it went."""
    given = {name: value for name, value in locals().items() if name not in {"config", "sets"}}

    def work() -> int:
        from .commands.fit import run_fit

        return run_fit(given, config, sets or [])

    return work


@app.command(name="search")
def _search(
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="DATA", help="As for fit; with --merge, the folders or stores of studies."),
    ] = None,
    target: shared_options.Target = None,
    task: shared_options.Task = None,
    drop: shared_options.Drop = None,
    kind: shared_options.Kind = None,
    group: shared_options.Group = None,
    time: shared_options.Time = None,
    weight: shared_options.Weight = None,
    class_weight: shared_options.ClassWeight = None,
    test: shared_options.Test = None,
    budget: Annotated[
        str | None,
        shared("--budget", panel=SEARCH, metavar="B", help="A time (60s, 2h) or '32 trials'. Default: 10min."),
    ] = None,
    trials: Annotated[
        str | None, shared("--trials", panel=SEARCH, metavar="N", help="So many trials; +N: more than there are.")
    ] = None,
    strategy: Annotated[
        str | None,
        shared(
            "--strategy",
            panel=SEARCH,
            metavar="NAME",
            help="random, sobol, grid, grids, coordinate, zoom, tpe, gp, cmaes or halving; or grid(values=3).",
        ),
    ] = None,
    ranges: Annotated[
        list[str] | None,
        shared(
            "--range",
            panel=SEARCH,
            metavar="PATH=RANGE",
            help="Search a knob: log(1e-4, 1e-1), integers(16, 1024), choice(Tanh, Rectifier), ...; repeatable.",
        ),
    ] = None,
    sets: Annotated[
        list[str] | None,
        shared("--set", panel=SEARCH, metavar="PATH=VALUE", help="Turn a knob and do not search it; repeatable."),
    ] = None,
    study: Annotated[
        str | None,
        shared(
            "--study",
            "--config",
            panel=SEARCH,
            metavar="FILE",
            help="A study file (TOML), such as a study's study.toml.",
        ),
    ] = None,
    metric: shared_options.Metric = None,
    seed: shared_options.Seed = None,
    folds: Annotated[
        str | None, shared("--folds", panel=SEARCH, metavar="K", help="Folds that judge each trial; 1: one part.")
    ] = None,
    finalists: Annotated[
        str | None,
        shared("--finalists", panel=SEARCH, metavar="N", help="Settings that are trained again. Default: 3."),
    ] = None,
    seeds: Annotated[
        str | None, shared("--seeds", panel=SEARCH, metavar="N", help="Seeds for each of them. Default: 5.")
    ] = None,
    committee: Annotated[
        str | None,
        shared(
            "--committee",
            panel=SEARCH,
            metavar="KIND",
            help="Members differ by seeds, bagging or inputs, or are contenders. Default: seeds.",
        ),
    ] = None,
    nested: Annotated[
        bool | None,
        typer.Option(
            "--nested/--no-nested",
            rich_help_panel=SEARCH,
            show_default=False,
            help="Double cross-validation. Default: for small sets without a test set.",
        ),
    ] = None,
    batch_size: Annotated[
        bool, shared("--batch-size", panel=SEARCH, help="Choose the mini-batch size at the end, by time.")
    ] = False,
    merge: Annotated[bool, shared("--merge", panel=QUESTION, help="Join studies of the same data into --out.")] = False,
    challenge: Annotated[
        str | None,
        shared("--challenge", panel=QUESTION, metavar="PATH=V,V", help="A knob's value against others, seed by seed."),
    ] = None,
    compare: Annotated[
        str | None,
        shared("--compare", panel=QUESTION, metavar="PATH=V,V", help="The same, all else searched for each value."),
    ] = None,
    distribution: Annotated[
        str | None,
        shared("--distribution", panel=QUESTION, metavar="N", help="One recipe with N seeds: how much is luck?"),
    ] = None,
    out: shared_options.Out = None,
    resume: shared_options.Resume = False,
    overwrite: shared_options.Overwrite = False,
    store: Annotated[
        str | None,
        shared("--store", panel=RUN, metavar="URL", help="Keep trials in sqlite:///FILE or postgresql://HOST/NAME."),
    ] = None,
    name: Annotated[
        str | None, shared("--name", panel=RUN, metavar="NAME", help="What the study is called in --store.")
    ] = None,
    on: Annotated[
        str | None,
        shared("--on", panel=RUN, metavar="WHO", help="here, cpu, gpu, workers:N, ray or ray://HOST:PORT."),
    ] = None,
    dry_run: shared_options.DryRun = False,
    json: shared_options.Json = False,
    quiet: shared_options.Quiet = False,
    no_report: shared_options.NoReport = False,
) -> Work:
    """Search for the best network within a budget: no knob left but that, and an honest error of what was chosen."""
    given = {name_: value for name_, value in locals().items() if name_ not in {"study", "sets", "ranges"}}

    def work() -> int:
        from .commands.search import run_search

        return run_search(given, study, sets or [], ranges or [])

    return work


@app.command(name="check")
def _check(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA|MODULE:FUNCTION|RUN",
            help="Data as for fit; your own problem (file.py:make_problem or package.module:make_problem); or a run.",
        ),
    ] = None,
    target: shared_options.Target = None,
    task: shared_options.Task = None,
    drop: shared_options.Drop = None,
    kind: shared_options.Kind = None,
    group: shared_options.Group = None,
    time: shared_options.Time = None,
    weight: shared_options.Weight = None,
    test: shared_options.Test = None,
    seed: shared_options.Seed = None,
    sets: Annotated[
        list[str] | None,
        shared(
            "--set",
            panel=TRAIN,
            metavar="PATH=VALUE",
            help="Turn a knob, as in fit; gradwise fit DATA --dry-run_program lists them; repeatable.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        shared(
            "--only", panel=RUN, metavar="CHECK", help="Run these checks alone: gradient, or data,gradient; repeatable."
        ),
    ] = None,
    out: shared_options.Out = None,
    resume: shared_options.Resume = False,
    overwrite: shared_options.Overwrite = False,
    on: Annotated[
        str | None, shared("--on", panel=RUN, metavar="DEVICE", help="cpu or gpu. Default: the best there is.")
    ] = None,
    json: shared_options.Json = False,
    quiet: shared_options.Quiet = False,
    no_report: shared_options.NoReport = False,
) -> Work:
    """Is anything wrong, where, and what next? Exit code 1 where an error is found."""
    given = {name: value for name, value in locals().items() if name != "sets"}

    def work() -> int:
        from .commands.check import run_check

        return run_check(given, sets or [])

    return work


@app.command(name="explain")
def _explain(
    code: Annotated[str, typer.Argument(metavar="CODE", help="The code of a finding, such as GW101.")],
) -> Work:
    """Explain a finding: what it means, how it is measured, what to do, when it is a false alarm."""

    def work() -> int:
        from .commands.check import run_explain

        return run_explain(code)

    return work


@app.command(name="predict")
def _predict(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run_program's folder, or a model.safetensors file.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="New rows: a file with the network's columns, or - .")],
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="Where to; - is standard output.")] = "-",
    form: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="FORM", help="csv, parquet or json. Default: by the ending of --out, else csv."
        ),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="A column with the probability of each class, too.")
    ] = False,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", metavar="COLUMN", help="Copy a column of DATA; repeatable.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing beside the predictions.")] = False,
) -> Work:
    """Predict new rows with a trained network."""

    def work() -> int:
        from .commands.predict_and_report import run_predict

        return run_predict(run, data, out, form, probabilities, keep or [], quiet)

    return work


@app.command(name="report")
def _report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run_program's folder.")],
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Where to. Default: report.html in the folder.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The result as one JSON object on standard output.")] = False,
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
