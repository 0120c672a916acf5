"""The command-line interface, and the one place where errors become messages.

    gradwise fit houses.csv --target price
    gradwise search houses.csv --target price --budget 10min
    gradwise check houses.csv --target price
    gradwise predict runs/houses-20250101-120000 new.csv --out predicted.csv
    gradwise report runs/houses-20250101-120000

Commands and their options are derived from the requests in `journeys/requests`. Only typer is imported here, so that
`--help` is fast. A command returns the work to do; it runs after typer has finished, so that every error, including
typer's own, is handled in the same place:

| what happened                              | exit | on standard error               |
|--------------------------------------------|------|---------------------------------|
| the request was wrong                      | 2    | error: what, where, what to do  |
| the work failed (diverged, disk full, ...) | 1    | error: what, where, what to do  |
| Ctrl-C (SIGTERM: 143, SIGHUP: 129)         | 130  | error: interrupted, ...         |
| a bug in gradwise                          | 1    | its traceback                   |
"""

import errno
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Annotated, Any

import typer

from .. import __version__
from ..journeys.requests import study_requests, training_requests
from ..journeys.requests.options import ARGUMENT, Option, Request, flag_of
from ..journeys.requests.values import read_flag
from ..runtime.errors import RequestError, WorkError, nearest
from ..runtime.interruption import EndingProgram, ending_program

Work = Callable[[], int]
REQUESTS: tuple[type[Request], ...] = (
    training_requests.FitRequest,
    study_requests.SearchRequest,
    study_requests.ChallengeRequest,
    study_requests.CompareRequest,
    study_requests.SeedsRequest,
    study_requests.BreakEvenRequest,
    study_requests.MergeRequest,
    training_requests.CheckRequest,
    training_requests.ExplainRequest,
    training_requests.PredictRequest,
    training_requests.ReportRequest,
)


def _version(asked: bool) -> None:
    if asked:
        print(f"gradwise {__version__}")
        raise typer.Exit


def _gradwise(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None: ...


def _parameter(name: str, declared: Option, default: Any) -> inspect.Parameter:
    """An option as typer wants it: a flag, a text or texts. Its request reads the text; a default is only shown."""
    is_flag = declared.read is read_flag
    kind: Any = bool if is_flag else list[str] if declared.many else str
    says_nothing = default is None or default is False or default in ((), {}, "")
    shown = declared.shown or ("" if says_nothing else str(default))
    help = declared.help.replace("[", r"\[")  # which is no markup
    about: dict[str, Any] = {"metavar": declared.metavar, "help": help}
    if declared.panel == ARGUMENT:
        made: Any = typer.Argument(**about, show_default=False)
        start: Any = inspect.Parameter.empty if declared.required else None
    else:
        flags = f"{flag_of(name)}/{flag_of('no_' + name)}" if is_flag and default is None else flag_of(name)
        shows: Any = shown if is_flag and shown else bool(shown)
        made = typer.Option(flags, *declared.also, **about, rich_help_panel=declared.panel, show_default=shows)
        start = default if is_flag else shown or None
    kind = kind if declared.required else kind | None
    annotation: Any = Annotated[kind, made]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=start, annotation=annotation)


def _command(request: type[Request], with_options: bool) -> Callable[..., Work]:
    """The command of a request, which returns the work to do with the options that were given."""

    def run(context: typer.Context, **values: Any) -> Work:
        begun = monotonic()  # a budget of time pays for the imports too
        named = ((name, value, context.get_parameter_source(name)) for name, value in values.items())
        given = {name: value for name, value, source in named if source is not None and source.name == "COMMANDLINE"}

        def work() -> int:
            from .commands import run_command

            return run_command(request.of(given), begun)

        return work

    declared = {name: one for name, one in request.options().items() if one.panel and with_options}
    parameters = [_parameter(name, one, request.default(name)) for name, one in declared.items()]
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    run.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in (context, *parameters)}
    run.__doc__ = (request.__doc__ or "").splitlines()[0]
    return run


def build_app(words: Sequence[str]) -> typer.Typer:
    """The program, with the options of the commands that are among these words: others take only time."""
    app = typer.Typer(
        name="gradwise",
        help="Train neural networks by sound practice: one command, an honest error estimate, a report.",
        add_completion=False,
        no_args_is_help=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_gradwise)
    for request in REQUESTS:
        app.command(name=request.verb)(_command(request, request.verb in words))
    return app


_click = sys.modules[typer.BadParameter.__module__]  # wherever typer keeps click


# Knobs that other tools have options for.
_KNOBS = {
    **dict.fromkeys(("--lr", "--learning-rate"), "optimiser.learning_rate=0.01"),
    **dict.fromkeys(("--epochs", "--max-epochs"), "stopping.epochs=50"),
    "--batch-size": "batches.size=64",
    **dict.fromkeys(("--dropout", "--dropout-rate"), "model.dropout=0.2"),
    "--hidden-layer-sizes": "model.widths=128,128",
    "--model": "model=Mlp",
    **dict.fromkeys(("--optimiser", "--optimizer"), "optimiser=Adam"),
}


def _usage(problem: Any, argv: Sequence[str]) -> str:
    """A usage error in our words: the closest option or command, or where to find help."""
    context: Any = getattr(problem, "ctx", None)
    hint = f" See {context.command_path if context is not None else 'gradwise'} --help."
    if isinstance(problem, _click.NoSuchOption) and context is not None:
        known = [option for parameter in context.command.params for option in parameter.opts if option.startswith("--")]
        usual = problem.option_name.replace("_", "-")
        if usual in _KNOBS and "--set" in known:
            return f"unknown option {problem.option_name}. Set the knob: --set {_KNOBS[usual]}"
        return f"unknown option {problem.option_name}.{nearest(problem.option_name, known) or hint}"
    message = " ".join(problem.format_message().split()).rstrip(".")
    commands = getattr(getattr(context, "command", None), "commands", None)
    word = next((word for word in argv if not word.startswith("-")), "")
    if commands and word and word not in commands:
        hint = nearest(word, commands)
    return f"{message[:1].lower()}{message[1:]}{'' if message.endswith('?') else '.' + hint}"


def _out_of_memory(problem: BaseException) -> bool:
    jax = sys.modules.get("jax")  # whoever raised its error has imported it
    of_jax = jax is not None and isinstance(problem, jax.errors.JaxRuntimeError)
    return isinstance(problem, MemoryError) or (of_jax and "RESOURCE_EXHAUSTED" in str(problem))


def _failure(problem: BaseException, argv: Sequence[str], interrupted: int) -> tuple[int, str] | None:
    """The exit code and message of an error, or None for a bug in gradwise. An interruption has this code."""
    if isinstance(problem, RequestError):
        return 2, str(problem)
    if isinstance(problem, WorkError):
        return 1, str(problem)
    if isinstance(problem, _click.ClickException):
        return 2, _usage(problem, argv)
    if isinstance(problem, KeyboardInterrupt):
        return interrupted, str(problem) or "interrupted. Everything saved so far is intact."
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


def _run(argv: Sequence[str], ending: EndingProgram) -> int:
    """Runs the command of these words, and reports how it failed."""
    command = typer.main.get_command(build_app(argv))
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
        failure = _failure(problem, argv, ending.exit_code)
        if failure is None:
            raise
        code, line = failure
        text = "".join(c if c.isprintable() else "\ufffd" for c in " ".join(line.split()))
        print(f"error: {text}", file=sys.stderr)
        return code


def run_program(argv: Sequence[str] | None = None) -> int:
    """Runs the program and returns its exit code. Only bugs in gradwise raise."""
    if argv is None:
        _as_program()
        argv = sys.argv[1:]
    with ending_program() as ending:
        return _run(argv, ending)


if __name__ == "__main__":
    sys.exit(run_program())
