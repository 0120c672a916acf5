"""The surface of the command line, and the one boundary where errors become lines.

    gradwise fit houses.csv --target price
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
from ..core.errors import RequestError, WorkError, nearest

Work = Callable[[], int]

app = typer.Typer(
    name="gradwise",
    help="Train neural networks by sound practice: one command, an honest error, a report.",
    add_completion=False,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_DATA, _TRAIN, _RUN, _SAY = "The data", "Training", "The run", "What is said"


def _option(*names: str, panel: str, help: str, metavar: str = "") -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, show_default=False)


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
    target: Annotated[
        list[str] | None, _option("--target", panel=_DATA, metavar="COLUMN", help="What to predict; repeatable.")
    ] = None,
    task: Annotated[
        str | None,
        _option("--task", panel=_DATA, metavar="KIND", help="classes, labels or numbers; else by the values."),
    ] = None,
    drop: Annotated[
        list[str] | None, _option("--drop", panel=_DATA, metavar="COLUMN", help="Leave a column out; repeatable.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        _option("--kind", panel=_DATA, metavar="COLUMN=KIND", help="Read it as number, category or date; repeatable."),
    ] = None,
    group: Annotated[
        str | None, _option("--group", panel=_DATA, metavar="COLUMN", help="Keep rows of one group in one part.")
    ] = None,
    time: Annotated[
        str | None, _option("--time", panel=_DATA, metavar="COLUMN", help="Learn from the past, judge by the newest.")
    ] = None,
    weight: Annotated[
        str | None, _option("--weight", panel=_DATA, metavar="COLUMN", help="How much each row counts.")
    ] = None,
    class_weight: Annotated[
        str | None,
        _option("--class-weight", panel=_DATA, metavar="WEIGHTS", help="balanced, or class=weight,class=weight."),
    ] = None,
    test: Annotated[
        str | None, _option("--test", panel=_DATA, metavar="FILE", help="A fixed test set, in DATA's form.")
    ] = None,
    metric: Annotated[
        str | None,
        _option(
            "--metric",
            panel=_TRAIN,
            metavar="NAME",
            help="error_rate, balanced_error_rate, log_loss or auc; rmse, mae or r2 for numbers.",
        ),
    ] = None,
    folds: Annotated[
        str | None, _option("--folds", panel=_TRAIN, metavar="K", help="Estimate by k-fold cross-validation too.")
    ] = None,
    seed: Annotated[
        str | None, _option("--seed", panel=_TRAIN, metavar="N", help="All randomness comes from it. Default: 0.")
    ] = None,
    sets: Annotated[
        list[str] | None,
        _option(
            "--set",
            panel=_TRAIN,
            metavar="PATH=VALUE",
            help="Turn a knob, such as optimiser.learning_rate=0.03; --dry-run lists them; repeatable.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        _option(
            "--config", panel=_TRAIN, metavar="FILE", help="A TOML file: a table fit for options, one for each part."
        ),
    ] = None,
    max_time: Annotated[
        str | None, _option("--max-time", panel=_RUN, metavar="TIME", help="Train no longer than this: 90s, 10min, 2h.")
    ] = None,
    out: Annotated[
        str | None, _option("--out", panel=_RUN, metavar="DIR", help="The run's folder. Default: runs/NAME-TIME.")
    ] = None,
    resume: Annotated[bool, _option("--resume", panel=_RUN, help="Go on with the run in --out.")] = False,
    overwrite: Annotated[bool, _option("--overwrite", panel=_RUN, help="Replace the run in --out.")] = False,
    checkpoint: Annotated[
        str | None,
        _option("--checkpoint", panel=_RUN, metavar="SECONDS", help="Time between checkpoints. Default: 10."),
    ] = None,
    on: Annotated[
        str | None, _option("--on", panel=_RUN, metavar="DEVICE", help="cpu or gpu. Default: the best there is.")
    ] = None,
    dry_run: Annotated[
        bool, _option("--dry-run", panel=_SAY, help="Say what would be done, and the data as understood.")
    ] = False,
    json: Annotated[bool, _option("--json", panel=_SAY, help="One JSON object on standard output.")] = False,
    quiet: Annotated[bool, _option("--quiet", "-q", panel=_SAY, help="One line, no progress.")] = False,
    no_report: Annotated[bool, _option("--no-report", panel=_SAY, help="Write no report.html.")] = False,
) -> Work:
    """Train one network well: an honest test error, and a page that shows how it went."""
    given = {name: value for name, value in locals().items() if name not in {"config", "sets"}}

    def work() -> int:
        from .fitting import run_fit

        return run_fit(given, config, sets or [])

    return work


@app.command(name="predict")
def _predict(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder, or a model.safetensors file.")],
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
        from .finished import run_predict

        return run_predict(run, data, out, form, probabilities, keep or [], quiet)

    return work


@app.command(name="report")
def _report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder.")],
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Where to. Default: report.html in the folder.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The result as one JSON object on standard output.")] = False,
) -> Work:
    """Write a run's report again: one self-contained page."""

    def work() -> int:
        from .finished import run_report

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
        return 130, "interrupted. What was saved before is still there."
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


def run(argv: Sequence[str] | None = None) -> int:
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
    sys.exit(run())
