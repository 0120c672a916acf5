"""What each command does: read the request, call its journey, print the result, return the exit code.

Journeys are imported when their command runs, so that a prediction does not wait for the imports of a search.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

from ..journeys.run_folder import Written
from ..records.fit import Fit
from ..records.study import Study
from ..runtime.errors import RequestError, WorkError
from .terminal.output import Progress, console, one_line, say, show_plan, show_result


def _print_json(run: Written[Any]) -> None:
    report = None if run.report is None else str(run.report)
    print(json.dumps({**run.record.summary(), "out": str(run.folder), "report": report}))


def _announce_run(run: Written[Fit], as_json: bool, quiet: bool) -> int:
    """Prints the result of a fit and returns the exit code."""
    result, folder = run.record, run.folder
    if as_json:
        _print_json(run)
    elif quiet:
        print(one_line(result))
    else:
        show_result(result, folder, run.report)
    if result.outcome.failed:
        raise WorkError(f"the run {result.outcome}; {folder} holds the state before that. Lower the learning rate.")
    if result.outcome.name == "interrupted":
        say(f"error: {result.outcome}; the best model so far is in {folder}. Continue with --out {folder} --resume.")
        return 130
    return 0


def _announce_study(run: Written[Study], as_json: bool, quiet: bool, resumable: bool = True) -> int:
    """Prints the result of a study and returns the exit code."""
    from .terminal.study import answers, show_study

    study, folder = run.record, run.folder
    if as_json:
        _print_json(run)
    elif quiet:
        print(one_line(study) if study.winner else " ".join(answers(study)) or one_line(study))
    else:
        show_study(study, folder, run.report)
    if study.outcome == "interrupted":
        again = f" Continue with: gradwise search --out {folder} --resume." if resumable else ""
        say(f"error: interrupted after {len(study.trials)} trials; results so far are in {folder}.{again}")
        return 130
    if study.best is None:
        why = next((one.what for one in study.findings if one.level == "error"), "no trial produced a model.")
        raise WorkError(f"{why.rstrip('.')}. All trials are saved in {folder}.")
    return 0


def _announce_plan(plan: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print(json.dumps(plan, default=str))
    else:
        show_plan(plan)
    return 0


def fit_command(given: dict[str, Any], config: str | None, sets: list[str]) -> int:
    """`gradwise fit`."""
    from ..journeys.fit import plan_fit, run_fit
    from ..journeys.requests.assignments import flatten, parse_assignment
    from ..journeys.requests.fit_options import merge_options, read_config

    table, tables = read_config(config) if config else ({}, {})
    # Those of the command line come last, so they override the file's.
    assignments = [*flatten(tables, str(config)), *(parse_assignment(text) for text in sets)]
    options = merge_options(given, table, str(config))
    with Progress(not options.quiet) as progress:
        if not options.dry_run:
            run = run_fit(options, assignments, progress)
        else:
            plan = plan_fit(options, assignments, progress)
    return _announce_plan(plan, options.json) if options.dry_run else _announce_run(run, options.json, options.quiet)


def search_command(
    given: dict[str, Any], study: str | None, sets: list[str], ranges: list[str], begun: float | None = None
) -> int:
    """`gradwise search`, started at this time."""
    from ..journeys.requests.search_options import is_layerwise, read_request
    from ..journeys.search import plan_search, run_search

    asked = read_request(given, study, sets, ranges)
    options = asked.options
    if is_layerwise(options.strategy):
        return _layerwise_command(asked)
    with Progress(not options.quiet) as progress:
        if not options.dry_run:
            run = run_search(asked, progress, begun)
        else:
            plan = plan_search(asked, progress)
    return _announce_plan(plan, options.json) if options.dry_run else _announce_study(run, options.json, options.quiet)


def _layerwise_command(asked: Any) -> int:
    from ..journeys.layerwise import plan_layerwise, run_layerwise

    options = asked.options
    with Progress(not options.quiet) as progress:
        if not options.dry_run:
            run = run_layerwise(asked, progress)
        else:
            plan = plan_layerwise(asked, progress)
    if not options.dry_run:
        return _announce_run(run, options.json, options.quiet)
    kept = f"{plan['settings']} settings each, the {plan['keep']} best kept: {plan['trainings']} trainings."
    print(json.dumps(plan) if options.json else f"{plan['levels']} levels, {plan['layers']}, {kept}")
    return 0


def question_command(given: dict[str, Any]) -> int:
    """`gradwise challenge`, `compare` and `seeds`."""
    from ..journeys.comparison import run_comparison
    from ..journeys.requests.search_options import read_request

    asked = read_request(given, None, given.pop("sets", None) or [], given.pop("ranges", None) or [])
    with Progress(not asked.options.quiet) as progress:
        run = run_comparison(asked, progress)
    return _announce_study(run, asked.options.json, asked.options.quiet, resumable=False)


def merge_command(studies: tuple[str, ...], given: dict[str, Any]) -> int:
    """`gradwise merge`."""
    from ..journeys.merge import run_merge

    with Progress(not given["quiet"]) as progress:
        run = run_merge(studies, given, progress)
    return _announce_study(run, given["json"], given["quiet"])


def check_command(given: dict[str, Any], sets: list[str]) -> int:
    """`gradwise check`; its exit code is 1 if an error was found."""
    from ..journeys.check import CheckOptions, run_check
    from ..journeys.requests.fit_options import chosen_of
    from .terminal.check import show_checked

    options = CheckOptions(**chosen_of(CheckOptions, given))
    with Progress(not options.quiet) as progress:
        run = run_check(options, sets, progress)
    if options.json:
        _print_json(run)
    elif options.quiet:
        print(run.record.verdict)
    else:
        show_checked(run.record, run.report)
    return 0 if run.record.passed else 1


def explain_command(code: str) -> int:
    """`gradwise explain`: the page of a code."""
    from ..checking.codes import page

    text = page(code)
    if sys.stdout.isatty():
        from rich.markdown import Markdown

        console().print(Markdown(text))
    else:
        print(text, end="")
    return 0


def _print_bytes(content: bytes) -> None:
    if hasattr(sys.stdout, "buffer"):
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        sys.stdout.write(content.decode())


def predict_command(
    run: str, data: str, out: str, form: str | None, probabilities: bool, keep: Sequence[str], quiet: bool
) -> int:
    """`gradwise predict`."""
    from ..journeys.predict import run_predict

    if form == "parquet" and out == "-" and sys.stdout.isatty():
        raise RequestError("--format parquet is binary and cannot go to a terminal. Give a file with --out.")
    with Progress(not quiet) as progress:
        found = run_predict(run, data, out=out, form=form, probabilities=probabilities, keep=keep, progress=progress)
    if out == "-":
        _print_bytes(found.content)
    for remark in () if quiet else found.remarks:
        say(remark)
    return 0


def report_command(run: str, out: str | None, as_json: bool) -> int:
    """`gradwise report`."""
    from ..journeys.predict import run_report

    record, page, path = run_report(run, out)
    if path is None:
        _print_bytes(page.encode())
    if as_json:
        print(json.dumps({**record.summary(), "out": run, "report": str(path or out)}))
    elif path is not None:
        print(path)
    return 0
