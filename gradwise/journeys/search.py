"""`gw.search` and `gradwise search`: read the data, search, diagnose, estimate, write, report.

    model = gw.search("houses.csv", target="price", budget="10min")
    model = gw.search(X, y, trials=32, range={"optimiser.learning_rate": gw.LogUniform(1e-4, 1.0)})

Everything is validated before anything is created: options, then the folder, the data, the space and the device.
`folders/study_folder.py` describes the folder's contents during and after a search.
"""

import dataclasses
import json
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from jaxtyping import Array, Key

from ..checking.data.as_read import refuse_unlearnable
from ..checking.verdict.diagnosis import diagnose_study
from ..records.finding import Finding
from ..records.readings import write_readings
from ..records.study import Study
from ..records.study_files import is_study, read_study
from ..runtime import keys
from ..runtime.errors import RequestError, WorkError
from ..runtime.files import write_whole
from ..searching.running.study_clock import SearchPlan
from ..searching.search import EFFORT, StudyOptions, folds_before_finals, run_study
from ..searching.selection.committee_members import ANSWERS
from ..searching.selection.nested_cv import FOLDS, Interrupted, nested_search, share
from ..searching.storage.budget import Budget
from ..searching.storage.study_definition import prior_text
from ..searching.strategies.contract import AbstractStrategy, History
from ..searching.strategies.population_based_training import PopulationBasedTraining
from ..searching.strategies.recommended import Recommended
from ..specs.dataset import Dataset
from ..specs.recipe import Recipe
from ..specs.search_space import Space
from ..tracking.callbacks import Callbacks, call_back
from ..tracking.tracker import describe_recipe
from ..training.prepare import CLASS_WEIGHTS
from .data_and_recipe import Description, expected_sizes, find_in_data, start_device
from .dry_run import choices, data_section, folder_word
from .folders import run_folder as folders
from .folders.study_folder import find_loss, find_missing, publish_study, study_file, with_store, workplace
from .model import Model, model_of_record
from .progress import SILENT, AbstractProgress, Watch
from .progress_bar import progress_here
from .requests.given import arguments_named, documented, python_request, refuse_recipe_first
from .requests.strategies import is_layerwise
from .requests.study_requests import STUDY_FILE, SearchRequest
from .search_request import PreparedSearch, prepare_search

NESTED = "nested.json"


def _check_strategy(prepared: PreparedSearch) -> None:
    """Raises if the strategy cannot start in this space, such as a grid of a million cells."""
    if isinstance(prepared.strategy, PopulationBasedTraining):
        return  # what it cannot do was refused with its plan
    key = keys.from_seed(prepared.options.seed)
    if not prepared.strategy.ask(prepared.space, History(budget=prepared.budget.trials), 1, key=key):
        raise RequestError(
            "no trial is possible: the strategy has nothing to try in this space. Choose another with --strategy."
        )


def _study_options(
    prepared: PreparedSearch, work: Path | None, progress: AbstractProgress, begun: float | None, calls: Callbacks
) -> StudyOptions:
    options = prepared.options
    watch = progress.searching(prepared.budget, prepared.space, prepared.dataset, metric=prepared.metric)
    return StudyOptions(
        folder=work,
        store=options.store,
        name=options.name,
        resume=options.resume,
        on=options.on,
        checkpoint_seconds=options.checkpoint,
        watch=watch,
        say=lambda plan: progress.tell(f"plan     {plan}"),
        notice=progress.tell,
        settings=prepared.settings,
        begun=begun,
        trial_ended=calls.trial_ended,
    )


@dataclasses.dataclass(frozen=True)
class Procedure:
    """What is repeated by every search of a study and of its nested cross-validation."""

    space: Space
    dataset: Dataset
    strategy: AbstractStrategy
    key: Key[Array, ""]
    metric: str | None
    class_weight: CLASS_WEIGHTS
    plan: SearchPlan

    @property
    def _settings(self) -> dict[str, Any]:
        """The arguments that `run_study` and `nested_search` share."""
        names = ("strategy", "key", "metric", "class_weight", "plan")
        return {name: getattr(self, name) for name in names}

    def _described(self, study: Study, wanted: Description) -> Study:
        """The study with simple models beside its network or committee, and the importance of columns."""
        if study.predictor is None or study.outcome == "interrupted":
            return study
        given: dict[str, Any] = {"key": self.key, "metric": study.metric, "class_weight": self.class_weight}
        evidence = wanted.of(
            study.predictor,
            study.estimates.evidence,
            self.space.recipe,
            self.dataset,
            pooled=study.data.folds > 1,
            **given,
        )
        return dataclasses.replace(study, estimates=dataclasses.replace(study.estimates, evidence=evidence))

    def search(
        self, budget: Budget, options: StudyOptions, *, check_data: bool = True, describe: Description = Description()
    ) -> Study:
        """The study, diagnosed, with what was found in its data."""
        refuse_unlearnable(self.dataset)
        in_data = find_in_data(self.space.recipe, self.dataset, self.key) if check_data else ()
        study = run_study(self.space, self.dataset, budget=budget, options=options, **self._settings)
        study = self._described(study, describe)
        # Last: the first error among the findings is the reason if no trial left a model.
        return dataclasses.replace(study, findings=(*study.findings, *diagnose_study(study), *in_data))

    def estimate(self, study: Study, budget: Budget, on: str | None, **watching: Any) -> Study:
        """The study with its nested cross-validation, or with a finding if a fold produced no model."""
        try:
            found = nested_search(self.space, self.dataset, budget=budget, on=on, **watching, **self._settings)
        except Interrupted:
            return dataclasses.replace(study, outcome="interrupted")
        except WorkError as problem:
            return dataclasses.replace(study, findings=(*study.findings, Finding("warning", str(problem), "E2")))
        return dataclasses.replace(study, estimates=dataclasses.replace(study.estimates, nested=found))


def search_in(
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
    nested: bool = False,
    check_data: bool = True,
    describe: Description = Description(),
) -> Study:
    """Searches a space for the recipe that suits the data, within a budget of time or trials, and diagnoses the study.

    `nested` adds an estimate of the whole procedure by nested cross-validation, from a share of the budget;
    `check_data` looks for leaks and other faults of the data first. `describe` says whether simple models on
    the same rows and the importance of each column are measured too.
    """
    procedure = Procedure(space, dataset, strategy, key, metric, class_weight, plan)
    own, each = share(budget) if nested else (budget, None)
    study = procedure.search(own, options, check_data=check_data, describe=describe)
    if options.folder is not None:  # the caller sees the score now
        write_readings(study.data.test_readings, options.folder)
    if each is None or study.outcome == "interrupted" or study.predictor is None:
        return study
    return procedure.estimate(study, each, options.on)


def _description(options: SearchRequest) -> Description:
    return Description(baselines=not options.no_baselines)


def _search(prepared: PreparedSearch, procedure: Procedure, work: Path, options: StudyOptions) -> Study:
    """Runs the study; if it cannot start, leaves no files behind."""
    file = work / STUDY_FILE
    before = file.read_bytes() if file.is_file() else None
    write_whole(file, study_file(prepared.settings, prepared.options))
    try:
        return procedure.search(prepared.budget, options, describe=_description(prepared.options))
    except BaseException as problem:
        begun = any((work / name).exists() for name in (folders.JOURNAL, EFFORT))  # with a database there is no journal
        if isinstance(problem, RequestError) or not begun:
            file.unlink()
            if before is not None:
                write_whole(file, before)
        raise


def _known_folds(work: Path, budget: Budget) -> dict[int, float]:
    """Outer folds already measured by an earlier run with the same budget."""
    try:
        plain = json.loads((work / NESTED).read_text())
        return {int(n): float(v) for n, v in plain["folds"].items()} if plain["budget"] == str(budget) else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _estimate(
    prepared: PreparedSearch, procedure: Procedure, study: Study, work: Path, progress: AbstractProgress
) -> Study:
    """The study with its nested cross-validation, whose folds are saved as they are measured."""
    assert prepared.fold_budget is not None
    budget = prepared.fold_budget
    known = _known_folds(work, budget)

    def watch(number: int, value: float) -> None:
        known[number] = value
        write_whole(work / NESTED, json.dumps({"budget": str(budget), "folds": known}).encode())

    def watch_trials(number: int) -> Watch:
        return progress.searching(budget, prepared.space, prepared.dataset, f"fold {number + 1} of {FOLDS}: ")

    watching = {"known": dict(known), "watch": watch, "watch_trials": watch_trials}
    return procedure.estimate(study, budget, prepared.options.on, **watching)


def _procedure(prepared: PreparedSearch) -> Procedure:
    """What the search repeats, on a device that has started; raises if the strategy cannot."""
    options = prepared.options
    start_device(options.on)
    _check_strategy(prepared)
    own = (prepared.space, prepared.dataset, prepared.strategy, keys.from_seed(options.seed), prepared.metric)
    return Procedure(*own, options.class_weight, prepared.plan)


def _called(prepared: PreparedSearch) -> AbstractContextManager[Callbacks]:
    """The callbacks of a call from Python, begun."""
    return call_back(prepared.options.given.callbacks, describe_recipe(prepared.space.recipe))


def search_and_write(
    prepared: PreparedSearch, folder: Path, progress: AbstractProgress, begun: float | None = None
) -> Study:
    """Searches, estimates and writes; returns the study as written."""
    options = prepared.options
    procedure = _procedure(prepared)
    with workplace(folder, options) as work, _called(prepared) as calls:
        progress.phase("starting")
        lost = find_missing(folder) if options.resume else ()
        study = _search(prepared, procedure, work, _study_options(prepared, work, progress, begun, calls))
        study = dataclasses.replace(study, findings=(*study.findings, *lost))
        if prepared.fold_budget is not None and study.outcome != "interrupted" and study.predictor is not None:
            # Both are long; the first is not to be lost by what happens in the second.
            half = dataclasses.replace(study, outcome="interrupted")
            publish_study(half, folder, work, dataclasses.replace(options, no_report=True), progress)
            study, work = _estimate(prepared, procedure, study, folder, progress), folder
        publish_study(study, folder, work, options, progress)
        calls.end(study, folder / "report.html" if not options.no_report else None)
        return study


def _finished(folder: Path, options: SearchRequest) -> Study | None:
    """The study in the folder, if it already answers this request and no trial of it was lost."""
    work = folders.working(folder)
    if work != folder or not (folder / folders.RESULT).is_file():
        return None
    if not is_study(folder):
        raise RequestError(f"--resume: {folder} holds no study. Choose another folder, or replace it with --overwrite.")
    if options.set or options.range or options.budget.more or options.given.objects:
        return None  # whether that is the same study, the study's own record must tell
    found = read_study(folder)
    same = all(found.settings.get(name) == value for name, value in options.settings().items())
    return found if same and found.outcome == "finished" and not find_loss(folder, found) else None


def _plan(prepared: PreparedSearch, folder: Path) -> dict[str, Any]:
    """What a search would do, as plain values. Starts no device."""
    options, dataset, recipe = prepared.options, prepared.dataset, prepared.space.recipe
    train, valid, test = expected_sizes(recipe, dataset)
    folds = folds_before_finals(prepared.plan, dataset)
    by_budget = prepared.plan.folds is None and prepared.plan.committee in ANSWERS and dataset.times is None
    in_folds = "in folds" if by_budget else f"in {folds} folds"
    outer = prepared.fold_budget
    tries = prepared.strategy.describe(prepared.space, History(budget=prepared.budget.trials))
    finals = f"{prepared.plan.finalists} settings, {prepared.plan.seeds} seeds each"
    return {
        "data": data_section(dataset),
        "training": {
            "split": type(recipe.split).__name__,
            "rows to learn from, about": train,
            "rows to choose by, about": f"{train + valid}, {in_folds}" if by_budget or folds > 1 else valid,
            "rows to judge by, about": test,
            "metric": prepared.metric,
            "strategy": options.strategy,
            **({"tries": tries} if tries else {}),
            "budget": str(prepared.budget),
            "finalists": "none" if prepared.plan.committee in ANSWERS else finals,
            "committee": prepared.plan.committee,
            "mini-batch size": "chosen at the end" if prepared.plan.batch_size else recipe.batches.size,
            "double cross-validation": f"{FOLDS} folds, {outer} each" if outer is not None else "no",
            "on": options.on or "the best available device",
        },
        "ranges": [
            {
                "path": one.path,
                "range": prior_text(one.prior),
                "about": one.declaration.about if one.declaration else "",
            }
            for one in prepared.space.dimensions
        ],
        "recipe": choices(recipe),
        "command": prepared.settings["command"],
        "study_file": prepared.study_file,
        "out": str(folder),
        "folder": folder_word(folder, options.resume),
    }


def plan_search(options: SearchRequest, progress: AbstractProgress) -> dict[str, Any]:
    """What the search would do, as plain values; nothing is trained or written."""
    folder = folders.choose_folder(options.out, options.name_of_data, options.resume, options.overwrite)
    options = with_store(options, folder)
    progress.phase(f"reading {options.data}")
    prepared = prepare_search(options)
    progress.phase("planning")
    return _plan(prepared, folder)


def run_search(
    options: SearchRequest, progress: AbstractProgress = SILENT, begun: float | None = None
) -> folders.Written[Study]:
    """Searches, estimates and writes; or returns the finished study that already answers the request.

    A budget of time counts from `begun`, by default from here.
    """
    folder = folders.choose_folder(options.out, options.name_of_data, options.resume, options.overwrite)
    options = with_store(options, folder)
    found = _finished(folder, options) if options.resume else None
    if found is None:
        progress.phase(f"reading {options.data}")
        found = search_and_write(prepare_search(options), folder, progress, begun)
    return folders.Written(found, folder)


def _search_in_memory(options: SearchRequest, progress: AbstractProgress, begun: float) -> Study:
    """The same journey without a folder."""
    progress.phase(f"reading {options.data}")
    prepared = prepare_search(options)
    procedure = _procedure(prepared)
    with _called(prepared) as calls:
        progress.phase("starting")
        how, wanted = _study_options(prepared, None, progress, begun, calls), _description(options)
        study = procedure.search(prepared.budget, how, describe=wanted)
        if prepared.fold_budget is not None and study.outcome != "interrupted" and study.predictor is not None:
            study = procedure.estimate(study, prepared.fold_budget, options.on)
        calls.end(study)
    return study


@documented(SearchRequest)
def search(
    data: Any,
    targets: Any = None,
    *,
    trials: int | None = None,
    space: Space | None = None,
    strategy: str | AbstractStrategy | None = None,
    plan: SearchPlan | None = None,
    recipe: Recipe | None = None,
    set: Mapping[str, Any] | None = None,
    callbacks: Any = (),
    progress: bool | None = None,
    **options: Any,
) -> Model:
    """Searches for the best network that a budget of time or trials buys, and returns it with the record of the study.

    The data, `recipe` and its parts, `set`, `out` and `progress` are those of `gw.fit`. `range` maps knobs to what is
    searched, `{"model.dropout": "uniform(0, 0.5)"}` or a prior, beside the recommended ranges; `space` is a whole space
    of its own. `strategy` is a name or an object. `plan` says how thorough the search is. Each of `callbacks` gets a
    row for every finished trial. The model has `trials`, a data frame, beside all that one network has.
    """
    begun = time.monotonic()
    refuse_recipe_first("search", data)
    with arguments_named(), progress_here(progress) as shown:
        named = strategy if isinstance(strategy, str) else None
        asked = {**options, "set": set, "strategy": named}
        if trials is not None:
            asked["budget"] = f"{trials} trials"
        objects = {"space": space, "strategy": None if named else strategy, "plan": plan, "callbacks": callbacks}
        own = recipe if space is None else space.recipe
        request = python_request(SearchRequest, data, targets, asked, recipe=own, **objects)
        if is_layerwise(request.strategy):
            raise RequestError("the strategy `layerwise` runs from the command line, or in Python by `gw.layerwise`.")
        if request.out is None:
            return model_of_record(_search_in_memory(request, shown, begun))
        return model_of_record(run_search(request, shown, begun).record, Path(request.out))
