"""Prepares a search: reads the data, builds recipe and space, and records the study's settings.

Everything that can be validated without a device is validated here.
"""

import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .. import defaults
from ..recipes import InputForm, input_form
from ..records.trial import Trial
from ..runtime import keys
from ..runtime.errors import RequestError
from ..searching.search import SearchPlan
from ..searching.selection.batch_size_choice import check_batch_size
from ..searching.selection.committee_members import ANSWERS
from ..searching.selection.feature_choice import choose_metric
from ..searching.selection.nested_cv import is_worth_it, share
from ..searching.storage.budget import Budget
from ..searching.storage.study_definition import prior_text, write_study_file
from ..searching.storage.study_store import Store
from ..searching.strategies.contract import AbstractStrategy, History
from ..searching.strategies.grid import GridSequence, refuse_finished
from ..searching.strategies.population_based_training import PopulationBasedTraining, can_change
from ..searching.strategies.population_search import plan_populations
from ..specs.adapters import as_criterion
from ..specs.dataset import Dataset, refuse_several
from ..specs.paths import get
from ..specs.search_space import Space
from .data_and_recipe import (
    check_network,
    read_requested,
    refuse_targetless,
    resolve_for,
)
from .folders import run_folder as folders
from .folders.study_folder import find_record
from .pretraining import check_varied
from .requests.assignments import Resolved, locate, words_of
from .requests.options import flag_of
from .requests.ranges import build_space, written_ranges
from .requests.strategies import parse_strategy
from .requests.study_requests import SearchRequest


@dataclasses.dataclass(frozen=True)
class PreparedSearch:
    """Everything a search needs. `budget` is the study's own share, `fold_budget` that of each outer fold, if any."""

    options: SearchRequest
    dataset: Dataset
    resolved: Resolved
    space: Space
    strategy: AbstractStrategy
    plan: SearchPlan
    budget: Budget
    fold_budget: Budget | None
    metric: str
    settings: dict[str, Any]

    @property
    def study_file(self) -> str:
        return str(self.settings["study_file"])


def _typed(words: str) -> Any:
    """A value of a recipe in TOML."""
    if re.fullmatch(r"[+-]?\d{1,18}", words):
        return int(words)
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", words):
        return float(words)
    return {"true": True, "false": False}.get(words, words)


def _command(options: SearchRequest, resolved: Resolved, space: Space, dataset: Dataset) -> str:
    """The shell command: differences from the recommended space as --range, or as --set if not searched."""
    ranges, recommended = written_ranges(space), written_ranges(defaults.search_space(space.recipe, dataset))
    told = {path: words for path, words in ranges.items() if recommended.get(path) != words}
    set_already = {change.partition("=")[0] for change in resolved.changes}
    still = []
    for path in recommended:
        within = path.rpartition(".")[2] in {"count", "each"}
        knob = path.rpartition(".")[0] if within else path
        if path not in ranges and knob not in set_already and not any(one.startswith(f"{knob}.") for one in ranges):
            set_already.add(knob)
            still.append(f"{knob}={words_of(get(space.recipe, knob))}")
    return options.command((*resolved.changes, *still), told)


def settings_of(options: SearchRequest, resolved: Resolved, space: Space, dataset: Dataset) -> dict[str, Any]:
    """The contents of the study file, and the shell command and the file themselves, for the report."""
    ranges = written_ranges(space)
    changes = [change.partition("=") for change in resolved.changes]
    plain = {**options.settings(), "ranges": ranges, "recipe": {path: _typed(value) for path, _, value in changes}}
    return {**plain, "command": _command(options, resolved, space, dataset), "study_file": write_study_file(plain)}


def _stored_trials(options: SearchRequest) -> tuple[Trial, ...]:
    """The trials of the resumed study."""
    assert options.out is not None
    where = options.store or folders.working(Path(options.out)) / folders.JOURNAL
    with Store.open(where, options.name, write=False) as store:
        return tuple(store.trials())


def add_trials(options: SearchRequest) -> SearchRequest:
    """`+50 trials` as a total: 50 more than the study has."""
    if not options.budget.more:
        return options
    known = [_stored_trials(options)]
    found = find_record(Path(options.out or ""))
    if found is not None:
        known.append(found.trials)  # the journal may have lost some of these: they are run again
    there = max(sum(trial.phase == "search" for trial in trials) for trials in known)
    return dataclasses.replace(options, budget=Budget(trials=there + (options.budget.trials or 0)))


def _check_possible(space: Space, dataset: Dataset) -> None:
    """Raises if not even the smallest network of the space fits into memory."""
    smallest = space.recipe_at(dict.fromkeys(space.paths, 0.0))
    try:
        as_criterion(smallest.criterion).check_task(dataset.task)
        check_network(smallest, dataset)
    except RequestError as problem:
        raise RequestError(f"no trial is possible: {problem}") from None


def _resolved(options: SearchRequest, dataset: Dataset) -> Resolved:
    """The recipe that the search starts from; for features that of `fit`, as their score improves for long."""
    kind = "inputs" if options.unsupervised or options.learner is not None else dataset.task.kind
    if kind == "inputs":
        return resolve_for(options, kind, dataset)
    form = input_form(dataset)
    form = InputForm() if form.kind == "pictures" else form  # of which it trains perceptrons, as `for_search` says
    return resolve_for(options, kind, form=form, **defaults.search_parts(len(dataset)))


def _changeable(space: Space, asked: Iterable[str]) -> Space:
    """The space without recommended ranges that change the compiled program, since a population shares one. Ranges
    that the user gave stay, to be rejected by name."""
    ends = tuple(f".{path}" for path in asked)
    kept = [one for one in space.dimensions if f".{one.path}".endswith(ends) or can_change(one)]
    return Space(space.recipe, tuple(kept))


def _population_plan(
    strategy: PopulationBasedTraining, space: Space, options: SearchRequest, plan: SearchPlan
) -> SearchPlan:
    if options.question:
        raise RequestError(
            f"gradwise {options.question} compares fixed settings, but pbt changes them during training. Leave out "
            "--strategy."
        )
    return plan_populations(strategy, space, options.budget, plan)


def _check_features(options: SearchRequest, dataset: Dataset) -> None:
    """Raises on options that need predictions of a target."""
    check_varied(dataset)
    if options.question:
        raise RequestError(f"gradwise {options.question} needs a target to predict, and these data have none.")
    for name in ("nested", "batch_size"):
        if getattr(options, name):
            raise RequestError(f"{flag_of(name)} needs predictions of a target, and features have none. Leave it out.")


def _plan(options: SearchRequest, features: bool) -> SearchPlan:
    together = options.committee in {"bagging", "inputs"}  # of one split: folds make a committee of their own
    return SearchPlan(
        folds=options.folds or 1 if together or features else options.folds,
        finalists=options.finalists,
        seeds=options.seeds,
        committee=options.committee or ("none" if features else SearchPlan.committee),
        batch_size=options.batch_size,
    )


def _schedule_ranges(resolved: Resolved, named: Iterable[str]) -> dict[str, str]:
    """The learning-rate schedules that a sequence of grids compares; none if the request sets it."""
    if any("schedule" in path.split(".") for path in named):
        return {}
    return {one.path: prior_text(one.prior) for one in defaults.schedule_dimensions(resolved.recipe)}


def prepare_search(request: SearchRequest) -> PreparedSearch:
    """The request, ready to run."""
    options = add_trials(request)
    dataset = read_requested(options)
    refuse_several(dataset.task, "a search")
    resolved = _resolved(options, dataset)
    criterion = as_criterion(resolved.recipe.criterion)
    features = criterion.learns_from == "inputs"
    refuse_targetless(criterion, dataset)
    if features:
        _check_features(options, dataset)
        dataset = dataset if options.is_probed else dataset.without_targets()
    turned = [locate(resolved.recipe, path.removesuffix(".class"), "--set")[0] for path in options.set]
    given = options.given
    strategy = given.strategy or parse_strategy(options.strategy)
    ranges = options.range
    if isinstance(strategy, GridSequence) and not options.ranges:
        ranges = {**_schedule_ranges(resolved, [*turned, *ranges]), **ranges}
    space = build_space(
        resolved.recipe,
        ranges=options.ranges,
        source=f"{options.config}: [ranges]",
        more_ranges=ranges,
        fixed=[change.partition("=")[0] for change in resolved.changes],
        turned=turned,
        dataset=dataset,
    )
    if given.space is not None:
        space = dataclasses.replace(given.space, recipe=resolved.recipe)
    plan = given.plan or _plan(options, features)
    if isinstance(strategy, PopulationBasedTraining):
        space = _changeable(space, (*options.ranges, *options.range))
        plan = _population_plan(strategy, space, options, plan)
    _check_possible(space, dataset)
    if request.budget.more:
        there = History(_stored_trials(options), budget=options.budget.trials)
        refuse_finished(strategy, space, there, key=keys.from_seed(options.seed))
    if options.batch_size:
        check_batch_size(space)
    # An ensemble has an honest estimate of its own, at no cost.
    unasked = not features and plan.committee not in ANSWERS and is_worth_it(dataset, options.budget)
    wanted = unasked if options.nested is None else options.nested
    if wanted and dataset.times is not None:
        raise RequestError("--nested and --time exclude each other: folds mix past and future. Leave one out.")
    budget, fold_budget = share(options.budget) if wanted else (options.budget, None)
    metric = choose_metric(space, dataset, options.metric)
    return PreparedSearch(
        options=options,
        dataset=dataset,
        resolved=resolved,
        space=space,
        strategy=strategy,
        plan=plan,
        budget=budget,
        fold_budget=fold_budget,
        metric=metric,
        settings=settings_of(options, resolved, space, dataset),
    )
