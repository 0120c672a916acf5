"""The command-line interface, and the one place where errors become messages.

    gradwise fit houses.csv --target price
    gradwise search houses.csv --target price --budget 10min
    gradwise check houses.csv --target price
    gradwise predict runs/houses-20250101-120000 new.csv --out predicted.csv
    gradwise report runs/houses-20250101-120000

Only typer is imported here, so that `--help` is fast. A command returns the work to do; it runs after typer has
finished, so that every error, including typer's own, is handled in the same place:

| what happened                              | exit | on standard error               |
|--------------------------------------------|------|---------------------------------|
| the request was wrong                      | 2    | error: what, where, what to do  |
| the work failed (diverged, disk full, ...) | 1    | error: what, where, what to do  |
| Ctrl-C                                     | 130  | error: interrupted, ...         |
| a bug in gradwise                          | 1    | its traceback                   |
"""

import errno
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Annotated, Any

import typer

from .. import __version__
from ..runtime.errors import RequestError, WorkError, nearest
from .options import arguments

Work = Callable[[], int]

app = typer.Typer(
    name="gradwise",
    help="Train neural networks by sound practice: one command, an honest error estimate, a report.",
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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None: ...


def _command(name: str, *options: Mapping[str, Any]) -> Callable[[Callable[[dict[str, Any]], Work]], None]:
    """A command with these options, by name; what it decorates gets their values. Its docstring is the help."""

    def register(function: Callable[[dict[str, Any]], Work]) -> None:
        def run(**given: Any) -> Work:
            return function(given)

        declared = {one: annotation for several in options for one, annotation in several.items()}
        parameters = [
            inspect.Parameter(one, inspect.Parameter.KEYWORD_ONLY, default=_default(annotation), annotation=annotation)
            for one, annotation in declared.items()
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = declared
        run.__doc__ = function.__doc__
        app.command(name=name)(run)

    return register


def _default(annotation: Any) -> Any:
    """False for a flag, None where nothing need be given; what must be given has none."""
    kind = annotation.__origin__
    return False if kind is bool else inspect.Parameter.empty if kind in {str, list[str]} else None


@_command("fit", arguments.FIT)
def _fit(given: dict[str, Any]) -> Work:
    """Train one network, estimate its error on held-out data, and write a report."""

    def work() -> int:
        from .commands import fit_command

        return fit_command(given, given.pop("config"), given.pop("sets") or [])

    return work


@_command("search", arguments.SEARCH)
def _search(given: dict[str, Any]) -> Work:
    """Search for the best network within a budget, and estimate its error on held-out data."""

    def work() -> int:
        begun = monotonic()  # a budget of time pays for the imports too
        from .commands import search_command

        return search_command(given, given.pop("study"), given.pop("sets") or [], given.pop("ranges") or [], begun)

    return work


def _question(name: str, given: dict[str, Any]) -> Work:
    def work() -> int:
        from .commands import question_command

        return question_command({**given, "question": name})

    return work


@_command("challenge", arguments.KNOB, arguments.QUESTION)
def _challenge(given: dict[str, Any]) -> Work:
    """Compare values of one knob over the same seeds, everything else unchanged."""
    return _question("challenge", given)


@_command("compare", arguments.KNOB, arguments.QUESTION, arguments.SEARCHED)
def _compare(given: dict[str, Any]) -> Work:
    """Compare values of one knob, with all other knobs searched for each value."""
    return _question("compare", given)


@_command("seeds", arguments.DATASET, arguments.QUESTION)
def _seeds(given: dict[str, Any]) -> Work:
    """Train one recipe with many seeds, to see the effect of chance."""
    return _question("seeds", given)


@_command("merge", arguments.MERGE)
def _merge(given: dict[str, Any]) -> Work:
    """Merge studies of the same data into one, and conclude it."""

    def work() -> int:
        from .commands import merge_command

        return merge_command(tuple(given.pop("studies")), given)

    return work


@_command("check", arguments.CHECK)
def _check(given: dict[str, Any]) -> Work:
    """Check data, code and training for problems. Exits with code 1 if an error is found."""

    def work() -> int:
        from .commands import check_command

        return check_command(given, given.pop("sets") or [])

    return work


@_command("explain", arguments.EXPLAIN)
def _explain(given: dict[str, Any]) -> Work:
    """Explain a finding: what it means, how it is measured, how to fix it, and when it is a false alarm."""

    def work() -> int:
        from .commands import explain_command

        return explain_command(given["code"])

    return work


@_command("predict", arguments.PREDICT)
def _predict(given: dict[str, Any]) -> Work:
    """Predict new rows with a trained model."""

    def work() -> int:
        from .commands import predict_command

        return predict_command(**{**given, "out": given["out"] or "-", "keep": given["keep"] or []})

    return work


@_command("report", arguments.REPORT)
def _report(given: dict[str, Any]) -> Work:
    """Rewrite a run's report: one self-contained page."""

    def work() -> int:
        from .commands import report_command

        return report_command(given["run"], given["out"], given["json"])

    return work


def _usage(problem: Any) -> str:
    """A usage error in our words: the closest option, or where to find help."""
    context: Any = getattr(problem, "ctx", None)
    where = context.command_path if context is not None else "gradwise"
    name = str(getattr(problem, "option_name", ""))
    if context is not None and type(problem).__name__ == "NoSuchOption":
        known = [option for parameter in context.command.params for option in parameter.opts if option.startswith("--")]
        return f"unknown option {name}.{nearest(name, known) or f' See {where} --help.'}"
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
    """The exit code and message of an error, or None for a bug in gradwise."""
    if isinstance(problem, RequestError):
        return 2, str(problem)
    if isinstance(problem, WorkError):
        return 1, str(problem)
    if hasattr(problem, "format_message"):  # click's errors, wherever typer keeps click
        return 2, _usage(problem)
    if isinstance(problem, KeyboardInterrupt):
        return 130, str(problem) or "interrupted. Everything saved so far is intact."
    if _out_of_memory(problem):
        return 1, "out of memory. Use fewer rows or columns, a smaller network, or a larger machine."
    if isinstance(problem, RecursionError):
        return 2, "a file is nested too deeply to read: it was not written by gradwise."
    if isinstance(problem, OSError) and problem.errno is not None:
        full = problem.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
        where = f" at {problem.filename}" if problem.filename else ""
        remedy = " Free some space; everything saved so far is intact." if full else ""
        return 1, f"{problem.strerror}{where}.{remedy}"
    return None


def _as_program() -> None:
    """Sets up our own process, not a caller's: no library warnings, and streams that print any text."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # a user reads findings; what libraries deprecate is for developers
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def run_program(argv: Sequence[str] | None = None) -> int:
    """Runs the program and returns its exit code. Only bugs in gradwise raise."""
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
        # The reader closed the pipe. Python would complain again when it closes the stream.
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
