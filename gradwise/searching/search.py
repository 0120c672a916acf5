"""`search`: a pure learning algorithm with no knob left but the budget (row E1).

    space = gradwise.defaults.search_space(recipe)
    study = gradwise.search(space, dataset, budget=Budget(seconds=600), key=jax.random.key(0))
    study.best, study.winner, study.estimates["test"], study.predictor.predict(rows)

The journey: split once; train the recommended recipe on every fold, then others near it, each trial written down as it
ends; weigh all their networks into an ensemble by what they predict of rows that they did not see; correct the best
trial's score for having been chosen; and read the test part, once.

Other strategies explore more widely: they follow the borders, look more closely around the best, and choose the
mini-batch size last. Other committees have finals: the best settings again, with other seeds.
"""

import dataclasses
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import equinox as eqx
from jaxtyping import Array, Key

from .. import __version__
from ..evaluation.metrics import check_metric
from ..evaluation.trials.expected_best import advice
from ..records.finding import Finding
from ..records.study import Study
from ..records.trial import Proposal, Trial, best_of
from ..runtime import compilation, keys, machine_description
from ..runtime.errors import RequestError, WorkError
from ..runtime.files import finite, write_whole
from ..runtime.progress import silent
from ..specs.adapters import as_criterion
from ..specs.dataset import Dataset
from ..specs.recipe import Recipe
from ..specs.search_space import Space
from ..training.checkpoint import digest
from ..training.loop import listening
from ..training.population import enter
from ..training.prepare import CLASS_WEIGHTS, refuse_unlabelled, weights_of_classes
from ..training.state import uses_objective
from .running.driver import Driver, Watch
from .running.effort import Effort, plan_effort
from .running.evaluation_data import EvaluationData, Variant
from .running.executor_choice import choose_executor, expected_hands, is_accelerated
from .running.executors import AbstractExecutor
from .running.population_size import AbstractSlots
from .running.study_clock import SearchPlan, StudyClock, seeds_of
from .selection.batch_size import compare_batch_sizes
from .selection.committee_members import ANSWERS, check_kind, setting_of
from .selection.finalists import Conclusion, conclude, finalist_proposals
from .selection.study_findings import describe_evaluation_data, ensemble_advice, find_in_study, only_one, shortened_runs
from .storage.network_store import Contenders
from .storage.study_definition import Budget
from .storage.study_identity import StudyIdentity
from .storage.study_store import Store
from .strategies.coarse_to_fine import AroundBest
from .strategies.contract import AbstractStrategy, History
from .strategies.random_search import Random
from .strategies.range_borders import too_few_values
from .strategies.recommended import Recommended

_FOLDED = 1000  # rows up to which a trial is judged on folds: below, one part of them is too few to choose by
_FOLDS = 5
_BORDER_ROUNDS = 3
EFFORT = "effort.json"


@dataclasses.dataclass(frozen=True)
class StudyOptions:
    """How to run, as opposed to what to search: none of this changes which trials there are, but for a budget of time.

    `folder` keeps the study (its journal, the best networks); `store` puts the trials elsewhere: a file, or an address
    such as `postgresql://...`, where it is called `name`. `on` says who trains: see `executor_choice.py`. `settings` is
    what a study file holds.
    """

    folder: Path | None = None
    store: str | None = None
    name: str | None = None
    resume: bool = False
    on: str | None = None
    slots: AbstractSlots | None = None
    watch: Watch = silent
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)


def _open_store(options: StudyOptions, about: StudyIdentity) -> Store | None:
    where: str | Path | None = options.store or (options.folder / "study.journal" if options.folder else None)
    if where is None:
        return None
    exists = not options.store and Path(where).exists()
    create = not options.resume or (not options.store and not exists)
    store = Store.open(where, options.name, create=create, about=about)
    if options.resume:
        store.settle(about.settings)
    return store


def folds_before_finals(plan: SearchPlan, dataset: Dataset) -> int:
    """Folds that judge a trial where no ensemble is made of it: for small sets whose rows may be dealt at random."""
    if plan.folds is not None:
        return plan.folds
    rows = int(dataset.labelled.sum())
    return _FOLDS if 10 * _FOLDS <= rows <= _FOLDED and dataset.times is None else 1


def _effort(
    plan: SearchPlan, space: Space, dataset: Dataset, data: EvaluationData, budget: Budget, options: StudyOptions
) -> Effort:
    """Folds that judge a trial, and how long it trains; a study that goes on keeps those it began with."""
    note = None if options.folder is None else options.folder / EFFORT
    if options.resume and note is not None and note.is_file():
        try:
            return Effort(**json.loads(note.read_text()))
        except (ValueError, TypeError):
            raise WorkError(f"{note} is damaged: the study cannot go on. Begin it anew in another folder.") from None
    if plan.folds is not None or plan.committee not in ANSWERS:
        return Effort(folds_before_finals(plan, dataset))
    on = options.on
    return plan_effort(
        space.recipe, data, seconds=budget.seconds, hands=expected_hands(on), accelerated=is_accelerated(on)
    )


def _wanted(budget: Budget, driver: Driver) -> int | None:
    """How many trials of the search proper there are to be in the end."""
    if budget.trials is None:
        return None
    return budget.trials + (len(driver.of_phase("search")) if budget.more else 0)


def _beyond_borders(driver: Driver, each: int, clock: StudyClock) -> str:
    """Rounds of so many trials beyond the borders that hold the best value; how they ended.

    Each round is decided by the trials before it, so that a study that goes on decides as it did the first time.
    """
    for turn in range(_BORDER_ROUNDS):
        before = [*driver.of_phase("search"), *driver.of_phase("border")[: turn * each]]
        if best_of(before) is None or not driver.follow_borders(before):
            break
        ended = driver.explore(Random(), trials=(turn + 1) * each, until=clock.refine_until, phase="border")
        if ended != "finished":
            return ended
    return "finished"


def _explore(driver: Driver, strategy: AbstractStrategy, budget: Budget, plan: SearchPlan, clock: StudyClock) -> str:
    """The search proper, beyond its borders and around its best; how it ended."""
    wanted = _wanted(budget, driver)
    by_time = wanted is None
    if isinstance(strategy, Recommended):
        ended = driver.explore(strategy, trials=wanted, until=clock.end if by_time else math.inf)
        return "interrupted" if driver.asked.is_set() else "finished"
    ended = driver.explore(
        strategy,
        trials=wanted,
        until=clock.search_until if by_time else math.inf,
        borders=plan.borders and (by_time or strategy.looks_back),
        stop_early=plan.stop_early and by_time,
    )
    if ended == "interrupted":
        return ended
    if plan.borders:
        ended = _beyond_borders(driver, max(4, (wanted or len(driver.of_phase("search"))) // 4), clock)
    if plan.refine and driver.best is not None and ended != "interrupted":
        limit = None if by_time else max(2, (wanted or 0) // 4)
        ended = driver.explore(AroundBest(), trials=limit, until=clock.refine_until, phase="refine", few=by_time)
    return "interrupted" if driver.asked.is_set() else "finished"


def _choose_batch_size(driver: Driver, folder: Path | None, clock: StudyClock) -> dict[str, Any]:
    """The mini-batch size of the best recipe, chosen last (row C5), as the plain values of its study.

    Its runs have no folds and are compared by time, so no setting is chosen from them. A better size is one more trial.
    """
    note = None if folder is None else folder / "batch_size.json"
    if note is not None and note.is_file() and driver.of_phase("size"):
        return dict(json.loads(note.read_text()))
    best = best_of(driver.of_phase("search", "border", "refine"))
    if best is None:
        return {}

    def stop() -> bool:
        return driver.asked.is_set() or driver.seconds >= clock.end

    found = compare_batch_sizes(best.recipe, driver.data, driver.executor, first=driver.next, stop=stop)
    if stop():
        return {}
    driver.adopt(dataclasses.replace(trial, phase="size") for trial in found.trials)
    plain = dict(finite(found.plain()))
    if note is not None:
        write_whole(note, json.dumps(plain).encode())
    if found.recipe.batches.size != best.recipe.batches.size:
        driver.run([(Proposal(found.recipe, phase="batch"), driver.data.variants)], until=clock.end)
    return plain


def _hold_finals(driver: Driver, plan: SearchPlan, clock: StudyClock) -> None:
    """The best few settings again, with seeds of their own: as many as there is time for.

    Their numbers follow those of all other trials, so that a study that goes on finds those that it has.
    """

    def plan_of(trials: Iterable[Trial]) -> list[tuple[Proposal, tuple[Variant, ...]]]:
        return finalist_proposals(
            trials,
            driver.data.final_variants,
            settings=plan.finalists,
            seeds=seeds_of(plan, driver.data),
            kind=plan.committee if plan.committee != "contenders" else "seeds",
        )

    trials = driver.trials
    first = 1 + max((number for number, trial in trials.items() if trial.phase != "finalist"), default=-1)
    proposals = plan_of(trial for number, trial in trials.items() if number < first)
    if any(
        n in trials and setting_of(trials[n].recipe) != setting_of(p.recipe)
        for n, (p, _) in enumerate(proposals, first)
    ):
        first, proposals = driver.next, plan_of(trials.values())  # those there are were made by another plan
    driver.run(proposals, first=first, until=clock.end)


def _what_was_tried(
    strategy: AbstractStrategy, space: Space, trials: tuple[Trial, ...], budget: int | None
) -> list[Finding]:
    words = strategy.describe(space, History(trials, budget=budget))
    return [Finding("note", f"tried {words}.", "E7")] if words else []


def _refuse_unfit(recipe: Recipe, data: EvaluationData) -> None:
    """An optimiser that cannot use this model or this loss is refused here, not by every trial in its turn."""
    if uses_objective(recipe.optimiser):
        examples = data.place(recipe.scaler, data.variants[0])
        outputs = data.train.task.outputs
        eqx.filter_eval_shape(lambda r, e, k: enter(r, *e, outputs=outputs, key=k), recipe, examples, data.key)


def _evaluation_data(
    space: Space, dataset: Dataset, metric: str, class_weight: CLASS_WEIGHTS, key: Key[Array, ""]
) -> EvaluationData:
    """The parts of the data; what no trial could use is refused here, not by every trial in its turn."""
    criterion = as_criterion(space.recipe.criterion)
    refuse_unlabelled(criterion, dataset)
    options: dict[str, Any] = {"metric": metric, "class_weight": class_weight, "criterion": criterion, "key": key}
    data = EvaluationData.of(dataset, space.recipe.split, **options)
    weights_of_classes(class_weight, data.train)
    return data


def search(
    space: Space,
    dataset: Dataset,
    *,
    strategy: AbstractStrategy = Recommended(),
    budget: Budget = Budget(trials=8),
    key: Key[Array, ""],
    metric: str | None = None,
    class_weight: CLASS_WEIGHTS = None,
    plan: SearchPlan = SearchPlan(),
    options: StudyOptions = StudyOptions(),
) -> Study:
    """Searches a space for the recipe that suits the data, within a budget of time or trials."""
    if not space.dimensions:
        raise RequestError("the space has no dimension: there is nothing to search. Name a knob to vary.")
    check_kind(plan.committee)
    compilation.use_compilation_cache()
    metric = check_metric(metric or {"numbers": "rmse"}.get(dataset.task.kind, "error_rate"), dataset.task.kind)
    data = _evaluation_data(space, dataset, metric, class_weight, key)
    effort = _effort(plan, space, dataset, data, budget, options)
    data = dataclasses.replace(data, folds=effort.folds)
    space = dataclasses.replace(space, recipe=effort.applied(space.recipe))
    _refuse_unfit(space.recipe, data)
    seed = keys.seed_of(key)
    about = StudyIdentity(space, seed, strategy, digest(dataset), dataset.task.kind, metric, options.settings)
    store: Store | None = None
    try:
        # Who trains comes first: where nobody answers, no study is begun.
        with choose_executor(options.on, data, space, slots=options.slots) as executor, listening() as asked:
            store = _open_store(options, about)
            if options.folder is not None:
                write_whole(options.folder / EFFORT, json.dumps(dataclasses.asdict(effort)).encode())
            contenders = Contenders(options.folder)
            parts: dict[str, Any] = {"store": store, "contenders": contenders, "watch": options.watch, "asked": asked}
            driver = Driver(space, data, executor, key=key, **parts)
            clock = StudyClock(budget, driver, plan)
            wanted = _wanted(budget, driver)
            ended = _explore(driver, strategy, budget, plan, clock)
            sizes = _choose_batch_size(driver, options.folder, clock) if plan.batch_size and not asked.is_set() else {}
            if plan.finalists and plan.committee not in ANSWERS and not asked.is_set():
                _hold_finals(driver, plan, clock)
            study = _record(driver, space, strategy, plan, options, "interrupted" if asked.is_set() else ended)
            told = _what_was_tried(strategy, space, study.trials, wanted)
            late = (*only_one(study.trials, budget, driver.first_ended), *shortened_runs(effort))
            findings = (*told, *study.findings, *late)
            return dataclasses.replace(study, analysis={**study.analysis, **sizes}, findings=findings)
    finally:
        if store is not None:
            store.close()


def _record(
    driver: Driver,
    asked: Space,
    strategy: AbstractStrategy,
    plan: SearchPlan,
    options: StudyOptions,
    ended: str,
) -> Study:
    """Everything is decided here; what follows only measures, and reads the test part for the first and only time."""
    data = driver.data
    trials = tuple(driver.trials[number] for number in sorted(driver.trials))
    concluded: Conclusion = conclude(data, trials, driver.contenders.all(), metric=data.metric, kind=plan.committee)
    kind = data.train.task.kind
    reading = driver.reading
    chance = data.chance(reading.kind)
    study = Study(
        task=kind,
        metric=data.metric,
        space=driver.space,
        asked=asked,
        strategy=type(strategy).__name__,
        independent=strategy.independent and not driver.moved,
        trials=trials,
        settings=options.settings,
        data=describe_evaluation_data(data, asked.recipe),
        seed=keys.seed_of(driver.key),
        seconds=driver.seconds,
        version=__version__,
        machine=machine_description.describe_machine(),
        outcome=ended,
        unit=reading.unit,
        chance=chance,
        winner=concluded.winner,
        committee=concluded.committee,
        estimates=concluded.estimates,
        findings=(),
        predictor=concluded.predictor,
    )
    said = advice(
        trials,
        worst=chance,
        noise=driver.noise,
        independent=strategy.independent,
        shown=reading.shown,
        unit=" %" if reading.kind == "error" else "",
    )
    near = isinstance(strategy, Recommended)  # which asks for an ensemble, not where the best value of a knob lies
    if near:
        said = ensemble_advice(concluded.committee, len(trials)) or said
    values = [] if near else too_few_values(driver.space, trials)
    findings: list[Finding] = [*driver.findings, *values, *concluded.findings]
    findings += find_in_study(driver.space, trials, said, driver.contenders.notes)
    borders = [finding.what for finding in findings if finding.row == "E4"]
    analysis = {"advice": {"go_on": said.go_on, "sentence": said.sentence}, "borders": borders}
    return dataclasses.replace(study, findings=tuple(findings), analysis=analysis)


__all__ = ["AbstractExecutor", "Budget", "SearchPlan", "StudyOptions", "search"]
