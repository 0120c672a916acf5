"""`search`: a pure learning algorithm with no knob left but the budget (row E1).

    space = gradwise.defaults.search_space(recipe)
    study = gradwise.search(space, dataset, budget=Budget(seconds=600), key=jax.random.key(0))
    study.best, study.winner, study.estimates["test"], study.predictor.predict(rows)

The journey: split once; propose, train in populations, write each trial down as it ends; follow the borders; look more
closely around the best; choose the mini-batch size last; train the finalists again with other seeds; average the best
setting's networks into a committee; correct the winner's score for having been chosen; and read the test part, once.
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
from ..runtime.errors import RequestError
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
from .running.evaluation_data import EvaluationData, Variant
from .running.executor_choice import choose_executor
from .running.executors import AbstractExecutor
from .running.population_size import AbstractSlots
from .selection.batch_size import compare_batch_sizes
from .selection.committee_members import check_kind, setting_of
from .selection.finalists import Conclusion, conclude, finalist_proposals
from .selection.study_findings import describe_evaluation_data, find_in_study, only_one
from .storage.network_store import Contenders
from .storage.study_definition import Budget
from .storage.study_identity import StudyIdentity
from .storage.study_store import Store
from .strategies.coarse_to_fine import AroundBest
from .strategies.contract import AbstractStrategy
from .strategies.random_search import Random
from .strategies.range_borders import too_few_values

_FOLDED = 1000  # rows up to which a trial is judged on folds: below, one part of them is too few to choose by
_FOLDS = 5
_REFINED = 0.2  # of the time of the search proper
_CONCLUDED = 0.06  # of a budget of time, for what follows the last training
_BORDER_ROUNDS = 3


@dataclasses.dataclass(frozen=True)
class SearchPlan:
    """How thorough a search is, apart from its budget. None means: by itself.

    `folds` are those that judge a trial; `finalists` settings are trained again with `seeds` seeds each; `refine`
    looks around the best; `borders` follows the best value out of its interval; `stop_early` ends a search by time when
    more trials are no longer worth it; `batch_size` has the mini-batch size chosen last, on curves against time.
    """

    folds: int | None = None
    finalists: int = 3
    seeds: int = 5
    refine: bool = True
    borders: bool = True
    stop_early: bool = True
    committee: str = "seeds"
    batch_size: bool = False


@dataclasses.dataclass(frozen=True)
class StudyOptions:
    """How to run, as opposed to what to search: none of this changes which trials there are.

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


def folds_of(plan: SearchPlan, dataset: Dataset) -> int:
    """Folds that judge a trial: for small sets, where rows may be dealt at random."""
    if plan.folds is not None:
        return plan.folds
    rows = int(dataset.labelled.sum())
    return _FOLDS if rows <= _FOLDED and dataset.times is None and rows >= 10 * _FOLDS else 1


def seeds_of(plan: SearchPlan, data: EvaluationData) -> int:
    """Seeds of each finalist. Where a seed is a network for each fold, fewer seeds give as many networks."""
    each = len(data.final_variants)
    if each == 1 or plan.committee in {"bagging", "inputs"}:  # whose members are not judged on folds
        return plan.seeds
    return max(1, -(-plan.seeds // each))


class _Clock:
    """How the time of a study is shared out: to search, to refine, and for the finals at the end."""

    def __init__(self, budget: Budget, driver: Driver, plan: SearchPlan):
        self.budget, self.driver, self.plan = budget, driver, plan
        self.end = math.inf if budget.seconds is None else (1.0 - _CONCLUDED) * budget.seconds

    @property
    def reserve(self) -> float:
        """Time to keep for the finals: what they would take, between a tenth and a half of the whole."""
        if math.isinf(self.end) or not self.plan.finalists:
            return 0.0
        trials = [trial for trial in self.driver.of_phase("search", "border", "refine") if trial.ok]
        trials.sort(key=lambda trial: trial.score)
        best = trials[: max(3, len(trials) // 4)]
        each = sum(trial.seconds for trial in best) / len(best) if best else 0.0
        seeds = seeds_of(self.plan, self.driver.data)
        networks = seeds * len(self.driver.data.final_variants) / len(self.driver.data.variants)
        needed = 1.2 * each * self.plan.finalists * networks / self.driver.executor.hands
        return min(0.5 * self.end, max(0.1 * self.end, needed))

    @property
    def search_until(self) -> float:
        share = 1.0 - (_REFINED if self.plan.refine else 0.0)
        return share * (self.end - self.reserve)

    @property
    def refine_until(self) -> float:
        return self.end - self.reserve


def _wanted(budget: Budget, driver: Driver) -> int | None:
    """How many trials of the search proper there are to be in the end."""
    if budget.trials is None:
        return None
    return budget.trials + (len(driver.of_phase("search")) if budget.more else 0)


def _beyond_borders(driver: Driver, each: int, clock: _Clock) -> str:
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


def _explore(driver: Driver, strategy: AbstractStrategy, budget: Budget, plan: SearchPlan, clock: _Clock) -> str:
    """The search proper, beyond its borders and around its best; how it ended."""
    wanted = _wanted(budget, driver)
    by_time = wanted is None
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


def _choose_batch_size(driver: Driver, folder: Path | None, clock: _Clock) -> dict[str, Any]:
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


def _hold_finals(driver: Driver, plan: SearchPlan, clock: _Clock) -> None:
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


def _refuse_unfit(recipe: Recipe, data: EvaluationData) -> None:
    """An optimiser that cannot use this model or this loss is refused here, not by every trial in its turn."""
    if uses_objective(recipe.optimiser):
        examples = data.place(recipe.scaler, data.variants[0])
        outputs = data.train.task.outputs
        eqx.filter_eval_shape(lambda r, e, k: enter(r, *e, outputs=outputs, key=k), recipe, examples, data.key)


def search(
    space: Space,
    dataset: Dataset,
    *,
    strategy: AbstractStrategy = Random(),
    budget: Budget = Budget(trials=32),
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
    criterion = as_criterion(space.recipe.criterion)
    refuse_unlabelled(criterion, dataset)
    metric = check_metric(metric or {"numbers": "rmse"}.get(dataset.task.kind, "error_rate"), dataset.task.kind)
    data = EvaluationData.of(
        dataset,
        space.recipe.split,
        metric=metric,
        class_weight=class_weight,
        folds=folds_of(plan, dataset),
        criterion=criterion,
        key=key,
    )
    weights_of_classes(class_weight, data.train)  # refused here, not by every trial in its turn
    _refuse_unfit(space.recipe, data)
    seed = keys.seed_of(key)
    about = StudyIdentity(space, seed, strategy, digest(dataset), dataset.task.kind, metric, options.settings)
    store: Store | None = None
    try:
        # Who trains comes first: where nobody answers, no study is begun.
        with choose_executor(options.on, data, space, slots=options.slots) as executor, listening() as asked:
            store = _open_store(options, about)
            contenders = Contenders(options.folder)
            driver = Driver(
                space,
                data,
                executor,
                key=key,
                store=store,
                contenders=contenders,
                watch=options.watch,
                asked=asked,
            )
            clock = _Clock(budget, driver, plan)
            ended = _explore(driver, strategy, budget, plan, clock)
            sizes = _choose_batch_size(driver, options.folder, clock) if plan.batch_size and not asked.is_set() else {}
            if plan.finalists and not asked.is_set():
                _hold_finals(driver, plan, clock)
            study = _record(driver, space, strategy, plan, options, "interrupted" if asked.is_set() else ended)
            findings = (*study.findings, *only_one(study.trials, budget, driver.first_ended))
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
        independent=strategy.independent,
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
    findings: list[Finding] = [*driver.findings, *too_few_values(driver.space, trials), *concluded.findings]
    findings += find_in_study(driver.space, trials, said, driver.contenders.notes)
    borders = [finding.what for finding in findings if finding.row == "E4"]
    analysis = {"advice": {"go_on": said.go_on, "sentence": said.sentence}, "borders": borders}
    return dataclasses.replace(study, findings=tuple(findings), analysis=analysis)


__all__ = ["AbstractExecutor", "Budget", "SearchPlan", "StudyOptions", "search"]
