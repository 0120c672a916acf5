"""Questions answered by trials of their own, with a sentence and a confidence interval.

    gradwise challenge iris optimiser.learning_rate=0.001,0.01      row I1: one knob, nothing else changed
    gradwise compare iris model.widths.count=1,2,3                  row E21: other knobs searched for each value
    gradwise seeds iris --seeds 200                                 row D13: one recipe, many seeds
    gradwise break-even iris --methods Lbfgs,HessianFree            row H9: when they overtake stochastic descent

Each leaves a study folder with its trials and a report.
"""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import __version__
from ..optimisers.first_order.sgd import Sgd
from ..records.study import Study
from ..records.study_analysis import Analysis
from ..records.trial import Trial
from ..runtime import compilation, keys, machine_description
from ..runtime.errors import RequestError
from ..runtime.interruption import listening
from ..searching.comparison.challenge import challenge, compare
from ..searching.comparison.race import race, runs_of
from ..searching.comparison.seeds import seed_distribution
from ..searching.running.evaluation_data import EvaluationData
from ..searching.running.executor_choice import choose_executor
from ..searching.search import folds_before_finals
from ..searching.selection.study_findings import describe_evaluation_data
from ..specs.adapters import as_criterion
from ..specs.paths import knobs, replace
from ..specs.priors import Choice
from ..specs.recipe import Recipe
from ..specs.search_space import Dimension, Space
from ..training.stopping import Off
from .data_and_recipe import start_device
from .folders import run_folder as folders
from .folders.study_folder import publish_study, workplace
from .progress import SILENT, AbstractProgress
from .progress_bar import progress_here
from .requests.assignments import locate
from .requests.given import arguments_named, documented, python_request, refuse_recipe_first
from .requests.ranges import read_prior
from .requests.study_requests import BreakEvenRequest, QuestionRequest
from .search_request import PreparedSearch, prepare_search

_TRIALS_EACH = 16
_ENDLESS = 1e9  # examples: as old as a training may become
_Answer = tuple[tuple[Trial, ...], Analysis]


def _values(prepared: PreparedSearch) -> tuple[str, tuple[Any, ...]]:
    """`path=v1,v2` as the full path and its values; a value of several numbers is in brackets: [64, 64]."""
    words, source = str(prepared.options.knob), prepared.options.question
    path, equals, listed = words.partition("=")
    if not equals or not path.strip() or not listed.strip():
        raise RequestError(f"{source} {words}: expected path=value,value, such as optimiser.learning_rate=0.01,0.1.")
    recipe = prepared.space.recipe
    full, choice = read_prior(recipe, path.strip(), f"choice({listed})", source)
    assert isinstance(choice, Choice)
    return full, choice.values


@dataclasses.dataclass(frozen=True)
class _Place:
    """The setting of the question: data, workers, and when to stop."""

    prepared: PreparedSearch
    data: EvaluationData
    executor: Any
    stop: Callable[[], bool]


def _batch_methods(options: BreakEvenRequest, recipe: Recipe) -> tuple[Any, ...]:
    """The optimisers that `--methods` names."""
    _, choice = read_prior(recipe, "optimiser", f"choice({options.methods})", "--methods")
    assert isinstance(choice, Choice)
    return choice.values


def _racing(prepared: PreparedSearch, rows: int) -> Recipe:
    """The recipe of a race: with plain gradient descent unless an optimiser was set, and without dropout unless it was,
    since no line search would see the same criterion twice. Unless set, a mini-batch is at most a tenth of the rows,
    and time alone ends a training."""
    given, recipe = prepared.options.given, prepared.space.recipe
    if given.recipe is not None:
        return recipe
    changed = [change.partition("=")[0] for change in prepared.resolved.changes]
    if "optimiser" not in given.parts and not any(path.split(".")[0] == "optimiser" for path in changed):
        recipe = dataclasses.replace(recipe, optimiser=Sgd())
    for path, _, _ in knobs(recipe):
        if path.endswith("dropout") and path not in changed:
            recipe = replace(recipe, path, 0.0)
    if "stopping" not in given.parts and not any(path.split(".")[0] == "stopping" for path in changed):
        recipe = dataclasses.replace(recipe, stopping=Off(epochs=_ENDLESS / rows))
    most = max(1, rows // 10)
    if "batches" not in given.parts and "batches.size" not in changed and recipe.batches.size > most:
        recipe = replace(recipe, "batches.size", most)
    return recipe


def _ask_race(place: _Place, options: BreakEvenRequest, progress: AbstractProgress) -> _Answer:
    recipe = _racing(place.prepared, len(place.data.train))
    methods = _batch_methods(options, recipe)
    assert options.budget.seconds is not None
    each = options.budget.seconds / runs_of(recipe, methods, options.seeds)

    def watch(text: str) -> None:
        progress.phase(f"{options.question}: {text}")

    given: dict[str, Any] = {"seconds": each, "seeds": options.seeds, "stop": place.stop, "watch": watch}
    found = race(recipe, methods, place.data, **given)
    return found.trials, Analysis(break_even=found)


def _ask(place: _Place, progress: AbstractProgress) -> _Answer:
    """The trials and the answer."""
    prepared, options = place.prepared, place.prepared.options
    recipe = prepared.space.recipe
    seeds = options.seeds
    if isinstance(options, BreakEvenRequest):
        return _ask_race(place, options, progress)
    if options.question == "seeds":
        spread = seed_distribution(recipe, place.data, place.executor, seeds, stop=place.stop)
        return spread.trials, Analysis(seeds=spread)
    path, values = _values(prepared)
    if options.question == "challenge":
        found = challenge(recipe, path, values, place.data, place.executor, seeds, stop=place.stop)
        return found.trials, Analysis(challenge=found)
    trials, (space, strategy) = options.budget.trials, (prepared.space, prepared.strategy)
    each = _TRIALS_EACH if trials is None else max(1, trials // len(values))
    found = compare(space, path, values, place.data, place.executor, each, strategy, seeds, stop=place.stop)
    return found.trials, Analysis(comparison=found)


def _space(prepared: PreparedSearch) -> Space:
    """The space shown in the report: the knob compared, or the whole space searched for each value."""
    options, recipe = prepared.options, prepared.space.recipe
    if options.knob:
        path, values = _values(prepared)
        searched = prepared.space.dimensions if options.question == "compare" else ()
        others = [one for one in searched if one.path != path]
        return Space(recipe, (Dimension(path, Choice(values), locate(recipe, path, options.question)[1]), *others))
    return Space(recipe, ())


def _study(place: _Place, answer: _Answer, seconds: float, outcome: str) -> Study:
    prepared, data = place.prepared, place.data
    space = _space(prepared)
    scale = data.scale(space.recipe)
    settings = {name: value for name, value in prepared.settings.items() if name != "study_file"}
    return Study(
        task=data.train.task.kind,
        metric=data.metric,
        space=space,
        asked=space,
        strategy=prepared.options.question,
        independent=False,
        trials=tuple(sorted(answer[0], key=lambda trial: trial.number)),
        settings={**settings, "strategy": prepared.options.question, "budget": None},
        data=describe_evaluation_data(data, space.recipe),
        seed=prepared.options.seed,
        seconds=seconds,
        version=__version__,
        machine=machine_description.describe_machine(),
        outcome=outcome,
        unit=scale.unit,
        chance=data.chance(scale.kind),
        analysis=answer[1],
    )


@contextlib.contextmanager
def _place(prepared: PreparedSearch) -> Iterator[tuple[_Place, Any]]:
    options = prepared.options
    compilation.use_compilation_cache()
    data = EvaluationData.of(
        prepared.dataset,
        prepared.space.recipe.split,
        metric=prepared.metric,
        class_weight=options.class_weight,
        folds=folds_before_finals(prepared.plan, prepared.dataset),
        criterion=as_criterion(prepared.space.recipe.criterion),
        key=keys.from_seed(options.seed),
    )
    races = isinstance(options, BreakEvenRequest)  # in this process, one after another: they are timed
    executor = contextlib.nullcontext() if races else choose_executor(options.on, data, prepared.space)
    with executor as trains, listening() as asked:
        limit = None if races else options.budget.seconds
        end = math.inf if limit is None else time.monotonic() + limit
        yield _Place(prepared, data, trains, lambda: asked.is_set() or time.monotonic() >= end), asked


def _prepare(options: QuestionRequest, progress: AbstractProgress) -> PreparedSearch:
    """The request, ready to run; refused if a path, a value or a method in it is none."""
    progress.phase(f"reading {options.data}")
    prepared = prepare_search(options)
    _space(prepared)
    if isinstance(options, BreakEvenRequest):
        _batch_methods(options, prepared.space.recipe)
    start_device(options.on)
    return prepared


def _answer(prepared: PreparedSearch, progress: AbstractProgress) -> Study:
    question = prepared.options.question
    progress.phase("starting")
    with _place(prepared) as (place, event):
        begun = time.monotonic()
        progress.phase(f"{question}: training")
        answer = _ask(place, progress)
        return _study(place, answer, time.monotonic() - begun, "interrupted" if event.is_set() else "finished")


def _question(options: QuestionRequest, folder: Path, progress: AbstractProgress) -> Study:
    prepared = _prepare(options, progress)
    with workplace(folder, options) as work:
        study = _answer(prepared, progress)
        publish_study(study, folder, work, options, progress)
    return study


def run_comparison(options: QuestionRequest, progress: AbstractProgress = SILENT) -> folders.Written[Study]:
    """Trains what the question needs, and writes the answer as a study."""
    folder = folders.choose_folder(options.out, options.name_of_data, overwrite=options.overwrite)
    return folders.Written(_question(options, folder, progress), folder)


@documented(BreakEvenRequest)
def break_even(
    data: Any,
    targets: Any = None,
    *,
    methods: str | Iterable[str] | None = None,
    recipe: Recipe | None = None,
    set: Mapping[str, Any] | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Study:
    """Finds out when batch methods overtake stochastic gradient descent on these data, by error and by loss (row H9).

    The data, `recipe` and its parts, `set`, `out` and `progress` are those of `gw.fit`. `methods` names batch methods.
    The stochastic one is `Sgd`, or the `optimiser` given. The study's analysis holds the answer, `break_even`: its
    `sentence`, its `overtakings`, and the `lines` that `gw.report` draws.
    """
    refuse_recipe_first("break_even", data)
    with arguments_named(), progress_here(progress) as shown:
        names = methods if methods is None or isinstance(methods, str) else ",".join(methods)
        request = python_request(
            BreakEvenRequest, data, targets, {**options, "set": set, "methods": names}, recipe=recipe
        )
        if request.out is None:
            return _answer(_prepare(request, shown), shown)
        return run_comparison(request, shown).record
