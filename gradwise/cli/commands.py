"""What each command does: call the journey of its request, print the result, return the exit code.

Journeys are imported when their command runs, so that a prediction does not wait for the imports of a search.
"""

import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from ..journeys.folders.run_folder import Written
from ..journeys.progress_bar import progress_here
from ..journeys.requests.options import Request
from ..journeys.requests.study_requests import MergeRequest, QuestionRequest, SearchRequest
from ..journeys.requests.training_requests import (
    CheckRequest,
    ExplainRequest,
    FitRequest,
    FolderRequest,
    PredictRequest,
    ReportRequest,
)
from ..records.fit import Fit
from ..records.study import Study
from ..runtime.errors import RequestError, WorkError
from .terminal.output import console, one_line, say, show_plan, show_result

Result = TypeVar("Result")


def _print_json(run: Written[Any]) -> None:
    report = None if run.report is None else str(run.report)
    print(json.dumps({**run.record.summary(), "out": str(run.folder), "report": report}))


def _announce_run(run: Written[Fit], request: FolderRequest) -> int:
    """Prints the result of a fit and returns the exit code."""
    result, folder = run.record, run.folder
    if request.json:
        _print_json(run)
    elif request.quiet:
        print(one_line(result))
    else:
        show_result(result, folder, run.report)
    if result.outcome.failed:
        raise WorkError(f"the run {result.outcome}; {folder} holds the state before that. Lower the learning rate.")
    if result.outcome.name == "interrupted":
        raise KeyboardInterrupt(
            f"{result.outcome}; the best model so far is in {folder}. Continue with --out {folder} --resume."
        )
    return 0


def _announce_study(run: Written[Study], request: FolderRequest, resumable: bool = True) -> int:
    """Prints the result of a study and returns the exit code."""
    from .terminal.study import answers, show_study

    study, folder = run.record, run.folder
    if request.json:
        _print_json(run)
    elif request.quiet:
        print(one_line(study) if study.winner else " ".join(answers(study)) or one_line(study))
    else:
        show_study(study, folder, run.report)
    if study.outcome == "interrupted":
        again = f" Continue with: gradwise search --out {folder} --resume." if resumable else ""
        raise KeyboardInterrupt(f"interrupted after {len(study.trials)} trials; results so far are in {folder}.{again}")
    if study.best is None:
        why = next((one.what for one in study.findings if one.level == "error"), "no trial produced a model.")
        raise WorkError(f"{why.rstrip('.')}. All trials are saved in {folder}.")
    return 0


def _announce_plan(plan: dict[str, Any], request: FolderRequest) -> int:
    if request.json:
        print(json.dumps(plan, default=str))
    else:
        show_plan(plan)
    return 0


def _travel(journey: Callable[..., Result], request: Any, **given: Any) -> Result:
    """The result of a journey, whose progress is shown."""
    with progress_here(False if request.quiet else None) as progress:
        return journey(request, progress=progress, **given)


def _fit(request: FitRequest, begun: float) -> int:
    from ..journeys.fit import plan_fit, run_fit

    if request.dry_run:
        return _announce_plan(_travel(plan_fit, request), request)
    return _announce_run(_travel(run_fit, request, begun=begun), request)


def _search(request: SearchRequest, begun: float) -> int:
    from ..journeys.requests.strategies import is_layerwise
    from ..journeys.search import plan_search, run_search

    if is_layerwise(request.strategy):
        return _layerwise(request)
    if request.dry_run:
        return _announce_plan(_travel(plan_search, request), request)
    return _announce_study(_travel(run_search, request, begun=begun), request)


def _layerwise(request: SearchRequest) -> int:
    from ..journeys.layerwise import plan_layerwise, run_layerwise

    if not request.dry_run:
        return _announce_run(_travel(run_layerwise, request), request)
    plan = _travel(plan_layerwise, request)
    also = ", stacks of fewer layers fine-tuned too" if plan["shallower"] else ""
    kept = f"{plan['settings']} settings each, the {plan['keep']} best kept{also}: {plan['trainings']} trainings."
    print(json.dumps(plan) if request.json else f"{plan['levels']} levels, {plan['layers']}, {kept}")
    return 0


def _question(request: QuestionRequest, begun: float) -> int:
    from ..journeys.comparison import run_comparison

    return _announce_study(_travel(run_comparison, request), request, resumable=False)


def _merge(request: MergeRequest, begun: float) -> int:
    from ..journeys.folders.merge import run_merge

    return _announce_study(_travel(run_merge, request), request)


def _check(request: CheckRequest, begun: float) -> int:
    from ..journeys.check import run_check
    from .terminal.check import show_checked

    run = _travel(run_check, request)
    if request.json:
        _print_json(run)
    elif request.quiet:
        print(run.record.verdict)
    else:
        show_checked(run.record, run.report)
    return 0 if run.record.passed else 1


def _explain(request: ExplainRequest, begun: float) -> int:
    from ..checking.codes import page

    text = page(request.code)
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


def _predict(request: PredictRequest, begun: float) -> int:
    from ..journeys.predict import run_predict

    if request.format == "parquet" and request.out == "-" and sys.stdout.isatty():
        raise RequestError("--format parquet is binary and cannot go to a terminal. Give a file with --out.")
    found = _travel(run_predict, request)
    if request.out == "-":
        _print_bytes(found.content)
    for remark in () if request.quiet else found.remarks:
        say(remark)
    return 0


def _report(request: ReportRequest, begun: float) -> int:
    from ..journeys.predict import run_report

    record, page, path = run_report(request)
    if path is None:
        _print_bytes(page.encode())
    if request.json:
        print(json.dumps({**record.summary(), "out": request.run, "report": str(path or request.out)}))
    elif path is not None:
        print(path)
    return 0


_COMMANDS: dict[str, Callable[[Any, float], int]] = {
    "fit": _fit,
    "search": _search,
    "challenge": _question,
    "compare": _question,
    "seeds": _question,
    "break-even": _question,
    "merge": _merge,
    "check": _check,
    "explain": _explain,
    "predict": _predict,
    "report": _report,
}


def run_command(request: Request, begun: float) -> int:
    """Does what is requested, by a program that started at this time; returns the exit code."""
    return _COMMANDS[request.verb](request, begun)
