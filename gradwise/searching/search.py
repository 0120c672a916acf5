"""`search`: a learning algorithm whose only knob is the budget (row E1).

    space = gradwise.defaults.search_space(recipe)
    study = run_study(space, dataset, budget=Budget(seconds=600), key=jax.random.key(0))
    study.best, study.winner, study.estimates.test, study.predictor.predict(rows)

It splits the data once; trains the recommended recipe on every fold, then others near it, saving each trial when it
ends; combines their networks into an ensemble, weighted by their predictions of held-out rows; corrects the best
trial's score for selection bias; and reads the test set once. With `SearchPlan(batch_size="auto")` the mini-batch
size is chosen after the other knobs, before the ensemble.

Other strategies explore more widely: they extend ranges and look more closely around the best. Other committees have
finals: the best settings are trained again with other seeds.
"""

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
from jaxtyping import Array, Key

from .. import __version__
from ..evaluation.run_findings import find_in_parts
from ..evaluation.trials.cost import compare_short_runs
from ..records.finding import Finding
from ..records.readings import find_readings, next_reading
from ..records.study import Study
from ..records.study_analysis import Analysis
from ..records.trial import Trial
from ..records.used_rows import UsedRows
from ..runtime import compilation, keys, machine_description
from ..runtime.errors import RequestError, WorkError
from ..runtime.files import write_whole
from ..runtime.interruption import listening
from ..runtime.progress import silent
from ..specs.adapters import as_criterion
from ..specs.dataset import Dataset
from ..specs.recipe import Recipe
from ..specs.search_space import Space
from ..training.checkpoint import digest
from ..training.model_files import MODEL
from ..training.population import enter, program_signature
from ..training.prepare import CLASS_WEIGHTS, weights_of_classes
from ..training.state import uses_objective
from .phases import choose_size, explore, hold_finals, trials_wanted
from .running.cohort import written_out
from .running.driver import Driver, Watch
from .running.effort import Effort, measure_speed, plan_effort
from .running.evaluation_data import PROBE_METRICS, EvaluationData
from .running.executor_choice import choose_executor, expected_hands, is_accelerated, trials_at_once
from .running.executors import AbstractExecutor
from .running.population_size import AbstractSlots
from .running.study_clock import SIZED, SearchPlan, StudyClock
from .selection.answer_so_far import AnswerSoFar
from .selection.batch_size_choice import check_batch_size
from .selection.committee_members import ANSWERS, check_kind
from .selection.feature_choice import choose_metric, conclude_features, learns_features, without_committee
from .selection.finalists import Conclusion, conclude
from .selection.knob_kinds import refuse_capacity, space_recipes
from .selection.study_findings import (
    advise_study,
    describe_evaluation_data,
    find_in_study,
    only_one,
    shortened_runs,
    trials_behind,
)
from .storage.budget import Budget
from .storage.job_checkpoints import RUNNING, JobCheckpoints
from .storage.network_store import Contenders
from .storage.study_identity import StudyIdentity
from .storage.study_store import Store
from .strategies.contract import AbstractStrategy, History
from .strategies.grid import refuse_finished
from .strategies.population_based_training import PopulationBasedTraining
from .strategies.population_search import (
    device_of_population,
    plan_populations,
)
from .strategies.range_borders import too_few_values
from .strategies.recommended import Recommended

_FOLDED = 1000  # rows up to which a trial is judged on folds: below, one part of them is too few to choose by
_FOLDS = 5
_PROGRAMS_PAY = 24  # trials from which on networks of other kinds are worth the time to compile them
EFFORT = "effort.json"


@dataclasses.dataclass(frozen=True)
class StudyOptions:
    """How to run a search, as opposed to what to search: with a number of trials, none of this changes the trials.

    `folder` stores the study (its journal, the best networks); `store` puts the trials elsewhere: a file, or a database
    such as `postgresql://...`, under `name`. `on` chooses the workers: see `executor_choice.py`. `watch` hears how far
    the study has come, `trial_ended` gets each trial that this run has finished and written down, `say` the plan before
    the first trial, `notice` that a database is waited for. The clock (`time.monotonic`) starts at `begun`, if given.
    `settings` are the contents of the study file. Running trainings are checkpointed to the folder every
    `checkpoint_seconds`.
    """

    folder: Path | None = None
    store: str | None = None
    name: str | None = None
    resume: bool = False
    on: str | None = None
    slots: AbstractSlots | None = None
    watch: Watch = silent
    trial_ended: Callable[[Trial], Any] = silent
    say: Callable[[str], None] = silent
    notice: Callable[[str], None] = silent
    begun: float | None = None
    checkpoint_seconds: float = 10.0
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)


def _open_store(options: StudyOptions, about: StudyIdentity) -> Store | None:
    where: str | Path | None = options.store or (options.folder / "study.journal" if options.folder else None)
    if where is None:
        return None
    exists = not options.store and Path(where).exists()
    create = not options.resume or (not options.store and not exists)
    store = Store.open(where, options.name, create=create, about=about)
    store.notice = options.notice
    if options.resume:
        store.settle(about.settings)
    return store


def _checkpoints(options: StudyOptions, about: StudyIdentity, class_weight: CLASS_WEIGHTS) -> JobCheckpoints:
    """Where trainings under way are written; workers, and machines that share the folder, find it by its full path."""
    if options.folder is None:
        return JobCheckpoints()
    study = json.dumps([__version__, about.data, about.seed, about.metric, str(class_weight)])
    return JobCheckpoints(options.folder.resolve() / RUNNING, options.checkpoint_seconds, study)


def folds_before_finals(plan: SearchPlan, dataset: Dataset) -> int:
    """Folds that judge a trial where no ensemble is made of it: for small sets whose rows may be dealt at random."""
    if plan.folds is not None:
        return plan.folds
    rows = int(dataset.labelled.sum())
    return _FOLDS if 10 * _FOLDS <= rows <= _FOLDED and dataset.times is None else 1


def _effort(
    plan: SearchPlan, space: Space, dataset: Dataset, data: EvaluationData, budget: Budget, options: StudyOptions
) -> Effort:
    """The folds and epochs of a trial; a resumed study keeps those it started with."""
    note = None if options.folder is None else options.folder / EFFORT
    if options.resume and note is not None and note.is_file():
        try:
            return Effort(**json.loads(note.read_text()))
        except (ValueError, TypeError):
            raise WorkError(f"{note} is damaged: the study cannot be resumed. Start again in another folder.") from None
    if plan.folds is not None or plan.committee not in ANSWERS:
        return Effort(folds_before_finals(plan, dataset), trials=budget.trials)
    on = options.on
    seconds = None if budget.seconds is None else budget.seconds * (1.0 - SIZED if plan.batch_size else 1.0)
    speed = 1.0 if seconds is None else measure_speed(accelerated=is_accelerated(on))
    found = plan_effort(space.recipe, data, seconds=seconds, hands=expected_hands(on), speed=speed)
    return found if budget.trials is None else dataclasses.replace(found, trials=budget.trials)


def _tell_plan(effort: Effort, space: Space, budget: Budget, options: StudyOptions) -> None:
    """Saves the effort, for resuming, and announces the plan."""
    if options.folder is not None:
        write_whole(options.folder / EFFORT, json.dumps(dataclasses.asdict(effort)).encode())
    expected = dataclasses.replace(effort, trials=budget.trials or effort.trials)
    options.say(expected.describe(space.recipe, by_time=budget.trials is None))


def _within_effort(space: Space, effort: Effort) -> Space:
    """The space as the effort shapes it. A short search compiles one program: others would not pay off."""
    space = space.with_recipes(effort.applied)
    if effort.trials is None or effort.trials >= _PROGRAMS_PAY or not space.portfolio:
        return space
    program = program_signature(written_out(space.recipe, space.paths))
    same = [one for one in space.portfolio if program_signature(written_out(one, space.paths)) == program]
    return dataclasses.replace(space, portfolio=tuple(same))


def _refuse_unfit(recipe: Recipe, data: EvaluationData) -> None:
    """Raises once if the optimiser cannot use this model or loss, instead of failing every trial."""
    if uses_objective(recipe.optimiser):
        examples = data.place(recipe.scaler, data.variants[0], data.slots(recipe))
        outputs = data.train.task.outputs
        eqx.filter_eval_shape(lambda r, e, k: enter(r, *e, outputs=outputs, key=k), recipe, examples, data.key)


def _evaluation_data(
    space: Space, dataset: Dataset, metric: str, class_weight: CLASS_WEIGHTS, key: Key[Array, ""]
) -> EvaluationData:
    """Splits the data; raises once if no trial could use them."""
    criterion = as_criterion(space.recipe.criterion)
    options: dict[str, Any] = {"metric": metric, "class_weight": class_weight, "criterion": criterion, "key": key}
    data = EvaluationData.of(dataset, space.recipe.split, **options)
    weights_of_classes(class_weight, data.train)
    return data


def _suited(
    space: Space, strategy: AbstractStrategy, budget: Budget, plan: SearchPlan, options: StudyOptions
) -> tuple[SearchPlan, StudyOptions, list[Finding]]:
    """The plan and the options as features, or a population, need them, and what is to be told of it."""
    told: list[Finding] = []
    if learns_features(space):
        plan, told = without_committee(plan)
    if isinstance(strategy, PopulationBasedTraining):
        plan = plan_populations(strategy, space, budget, plan)
        options = dataclasses.replace(options, on=device_of_population(options.on))
    return plan, options, told


def _check_plan(plan: SearchPlan, space: Space) -> None:
    """Raises on requests that are invalid for any data."""
    if not space.dimensions:
        raise RequestError("nothing to search: the space has no dimension. Give the range of a knob.")
    check_kind(plan.committee)
    if plan.batch_size:
        check_batch_size(space)


def run_study(
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
    begun = options.begun or time.monotonic()  # to place the data and to start workers takes of the budget too
    _check_plan(plan, space)
    compilation.use_compilation_cache()
    metric = choose_metric(space, dataset, metric)
    if learns_features(space) and metric not in PROBE_METRICS:
        dataset = dataset.without_targets()
    plan, options, told = _suited(space, strategy, budget, plan, options)
    data = _evaluation_data(space, dataset, metric, class_weight, key)
    effort = _effort(plan, space, dataset, data, budget, options)
    data = dataclasses.replace(data, folds=effort.folds)
    refuse_capacity(data.judged_on, space_recipes(space))
    space = _within_effort(space, effort)
    _refuse_unfit(space.recipe, data)
    seed = keys.seed_of(key)
    about = StudyIdentity(space, seed, strategy, digest(dataset), dataset.task.kind, metric, options.settings)
    checkpoints = _checkpoints(options, about, class_weight)
    store: Store | None = None
    try:
        # Who trains comes first: where nobody answers, no study is begun.
        at_once = trials_at_once(effort.trials, effort.folds, by_time=budget.trials is None)
        hired = choose_executor(options.on, data, space, slots=options.slots, checkpoints=checkpoints, at_once=at_once)
        with hired as executor, listening() as asked:
            store = _open_store(options, about)
            _tell_plan(effort, space, budget, options)
            answer = _answer_so_far(plan, space, data, options.folder, timed=budget.seconds is not None)
            driver = Driver(
                space,
                data,
                executor,
                key=key,
                store=store,
                contenders=Contenders(options.folder),
                watch=options.watch,
                trial_ended=options.trial_ended,
                asked=asked,
                after=answer.update,
                begun=begun,
                checkpoints=checkpoints,
            )
            clock = StudyClock(budget, driver, plan, concluding=lambda: answer.concluding)
            study = _driven(space, strategy, clock, options)
            told += [*only_one(study.trials, budget, driver.first_ended), *shortened_runs(effort)]
            told += trials_behind(study.trials)
            return dataclasses.replace(study, findings=(*study.findings, *told))
    finally:
        if store is not None:
            store.close()


def _answer_so_far(
    plan: SearchPlan, space: Space, data: EvaluationData, folder: Path | None, *, timed: bool
) -> AnswerSoFar:
    """The model made during the search; none for features, which have no predictions to average."""
    path = None if folder is None else folder / MODEL
    about = {"metric": data.metric, "version": __version__}
    used = UsedRows.of(data.train.inputs, data.valid.inputs)
    wanted = timed or folder is not None  # to be saved, or to see how long the end of the study will take
    kind = plan.committee if wanted and not learns_features(space) else None
    return AnswerSoFar(path, data, kind=kind, about=about, used=used)


def _driven(space: Space, strategy: AbstractStrategy, clock: StudyClock, options: StudyOptions) -> Study:
    """The study through all its phases, and what it ends with."""
    driver, plan = clock.driver, clock.plan
    wanted = trials_wanted(clock.budget, driver)
    if clock.budget.more:
        refuse_finished(strategy, space, History(tuple(driver.trials.values()), budget=wanted), key=driver.key)
    ended = explore(strategy, clock, options.folder)
    sizes = choose_size(strategy, clock, options.folder)
    if plan.finalists and plan.committee not in ANSWERS and not driver.asked.is_set():
        hold_finals(clock)
    study = _record(driver, space, strategy, plan, options, "interrupted" if driver.asked.is_set() else ended)
    if study.outcome != "interrupted":
        driver.checkpoints.clear()
    tried = strategy.describe(space, History(study.trials, budget=wanted))
    told = [Finding("note", f"tried {tried}.", "E7")] if tried else []
    if study.winner is not None and study.winning_trial is not None:
        told += find_in_parts(study.winning_trial.recipe)
    analysis = dataclasses.replace(study.analysis, batch_size=sizes)
    return dataclasses.replace(study, analysis=analysis, findings=(*told, *study.findings))


def _record(
    driver: Driver,
    asked: Space,
    strategy: AbstractStrategy,
    plan: SearchPlan,
    options: StudyOptions,
    ended: str,
) -> Study:
    """Makes all decisions; what follows only measures, and reads the test set for the first and only time."""
    data = driver.data
    trials = tuple(driver.trials[number] for number in sorted(driver.trials))
    kept = driver.contenders.all()
    concluded: Conclusion = (
        conclude_features(data, trials, kept)
        if driver.features
        else conclude(data, trials, kept, metric=data.metric, kind=plan.committee)
    )
    readings = 0 if concluded.predictor is None or data.test is None else next_reading(options.folder)
    chance = data.chance(driver.scale.kind)
    study = Study(
        task="inputs" if driver.features else data.train.task.kind,
        metric=data.metric,
        space=driver.space,
        asked=asked,
        strategy=type(strategy).__name__,
        independent=strategy.independent and not driver.moved,
        trials=trials,
        settings=options.settings,
        data=describe_evaluation_data(data, asked.recipe, readings),
        seed=keys.seed_of(driver.key),
        seconds=driver.seconds,
        version=__version__,
        machine=machine_description.describe_machine(),
        outcome=ended,
        unit=driver.scale.unit,
        chance=chance,
        winner=concluded.winner,
        committee=concluded.committee,
        estimates=concluded.estimates,
        predictor=concluded.predictor,
        used=UsedRows.of(data.train.inputs, data.valid.inputs),
    )
    said = advise_study(driver, strategy, trials, chance, concluded.committee)
    # Of these the best value of a knob tells nothing: an ensemble is asked for, or the knob changes on the way.
    without = isinstance(strategy, Recommended | PopulationBasedTraining)
    values = [] if without else too_few_values(driver.space, trials)
    findings: list[Finding] = [*driver.findings, *values, *concluded.findings, *find_readings(readings)]
    findings += find_in_study(driver.space, trials, said, driver.contenders.notes)
    borders = tuple(finding.what for finding in findings if finding.row == "E4")
    short = compare_short_runs(trials, noise=driver.noise)
    analysis = Analysis(said, borders, short, populations=driver.populations)
    return dataclasses.replace(study, findings=tuple(findings), analysis=analysis)


__all__ = ["AbstractExecutor", "Budget", "SearchPlan", "StudyOptions", "run_study"]
