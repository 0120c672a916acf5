"""`AutoClassifier` and `AutoRegressor`: `fit` runs a whole search; the only setting is its budget (row E1).

    AutoClassifier("10min").fit(X, y).predict(X)
    AutoClassifier("64 trials", space={"model.widths": (64,), "optimiser.learning_rate": "log(1e-4, 1e-1)"})

With a budget of trials, the result depends only on the arguments and the seed; with a time budget, also on the
machine. No test set is held out: keep your own. An ensemble of the trials' networks predicts, and `study_` is the
record of the search; `gradwise.report(estimator.study_)` turns it into a page.
"""

import dataclasses
import math
import numbers
import warnings
from collections.abc import Mapping
from typing import Any, Self

from sklearn.exceptions import ConvergenceWarning

from .. import defaults
from ..evaluation.metrics import check_metric
from ..journeys.data_and_recipe import Description
from ..journeys.requests.assignments import locate
from ..journeys.requests.ranges import build_space
from ..journeys.search import search_in
from ..records.study import Study
from ..records.used_rows import UsedRows
from ..runtime import keys
from ..runtime.errors import RequestError
from ..runtime.progress import silent
from ..searching.running.population_size import BySize
from ..searching.search import SearchPlan, StudyOptions
from ..searching.selection.committee_members import check_kind
from ..searching.selection.knob_kinds import without_capacity
from ..searching.storage.budget import Budget, parse_budget
from ..searching.strategies.contract import AbstractStrategy
from ..searching.strategies.recommended import Recommended
from ..specs.contracts import AbstractSplit
from ..specs.dataset import Dataset
from ..specs.paths import knobs
from ..specs.priors import AbstractPrior
from ..specs.recipe import Recipe
from ..specs.search_space import Space, write_at
from ..training.predictor import AbstractPredictor
from .base import Estimator, TrainingRows
from .classifier import ClassTargets
from .regressor import NumberTargets


class _Lines:
    """Prints a line when a trial ends."""

    def __init__(self) -> None:
        self.last: tuple[Any, ...] = ()

    def __call__(self, line: dict[str, Any]) -> None:
        mark = (line["phase"], line["done"])
        if mark == self.last or not line["done"]:
            return
        self.last = mark
        of = "" if math.isinf(line["total"]) else f" of {line['total']}"
        failed = f", {line['failed']} failed" if line["failed"] else ""
        print(f"{line['phase']} {line['done']}{of}: best validation score {line['best']:.4g}{failed}")


def _space_of(said: Mapping[str, Any], dataset: Dataset, split: AbstractSplit) -> Space:
    """The space of a mapping: its ranges, with all other values fixed; the recommended ranges if it has none."""
    said = {str(name).replace("__", "."): value for name, value in said.items()}
    ranges = {path: value for path, value in said.items() if isinstance(value, (str, AbstractPrior))}
    fixed = {path: value for path, value in said.items() if path not in ranges}
    whole = {name: fixed[name] for name in ("model", "optimiser", "stopping") if name in fixed}
    recipe, still = defaults.for_search(dataset, split=split, **whole), []
    for path, value in fixed.items():
        full, _ = locate(recipe, path, "`space`")
        recipe = write_at(recipe, full, value)
        still.append(full)
    # A part given as an object is fixed with all its knobs.
    still += [path for path, _, _ in knobs(recipe) if path.startswith(tuple(f"{one}." for one in still))]
    space = build_space(recipe, ranges=ranges, source="`space`", fixed=still, dataset=dataset)
    if ranges or not isinstance(split, TrainingRows):
        return space
    return dataclasses.replace(without_capacity(space), portfolio=())  # training error cannot choose it


class AutoEstimator(Estimator):
    """The common part of `AutoClassifier` and `AutoRegressor`."""

    budget: Any
    strategy: Any
    space: Any
    finalists: int
    seeds: int
    committee: str
    batch_size: str | None
    nested: bool
    on: str | None

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "study_")

    def _trained(self) -> AbstractPredictor:
        if self.predictor_ is None:
            raise RequestError(f"there is nothing to predict with: {self._verdict()}")
        return self.predictor_

    def _used_rows(self) -> UsedRows | None:
        return self.study_.used

    def _verdict(self) -> str:
        """Why no trial left a network."""
        worst = next((finding for finding in self.study_.findings if finding.level == "error"), None)
        return "no trial left a network." if worst is None else worst.what

    # What is asked for.

    def _budget(self) -> Budget:
        budget = self.budget if isinstance(self.budget, Budget) else parse_budget(self.budget)
        if budget.more:
            raise RequestError(f"`budget`: every `fit` is a new search; write {str(budget)[1:]!r} for {str(budget)!r}.")
        return budget

    def _strategy(self) -> AbstractStrategy:
        strategy = Recommended() if self.strategy is None else self.strategy
        if not isinstance(strategy, AbstractStrategy):
            raise RequestError(
                f"`strategy` must be None or a strategy of `gradwise.searching`, such as Sobol(); got {strategy!r}."
            )
        return strategy

    def _plan(self, folds: int | None) -> SearchPlan:
        for name, least in (("finalists", 0), ("seeds", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
                raise RequestError(f"`{name}` must be a whole number from {least} on; got {value!r}.")
        committee = check_kind(str(self.committee))
        finalists, seeds = int(self.finalists), int(self.seeds)
        return SearchPlan(folds, finalists, seeds, committee=committee, batch_size=self.batch_size)

    def _split(self, rows: int) -> AbstractSplit:
        if self.validation_fraction == 0:
            raise RequestError("`validation_fraction` must be above 0: a search chooses by rows that were not learned.")
        return super()._split(rows)

    def _space(self, dataset: Dataset, split: AbstractSplit) -> Space:
        if isinstance(self.space, Space):
            found = self.space.with_recipes(lambda recipe: dataclasses.replace(recipe, split=split))
        elif self.space is None or isinstance(self.space, Mapping):
            found = _space_of(self.space or {}, dataset, split)
        else:
            raise RequestError(
                f"`space` must be None, a mapping from paths to ranges or a `Space`; got {self.space!r}."
            )
        if self.metric is None:
            return found
        metric = check_metric(self.metric, dataset.task.kind)
        return found.with_recipes(lambda recipe: defaults.following(recipe, metric))

    # The search.

    def fit(self, X: Any, y: Any, sample_weight: Any = None, validation_data: Any = None) -> Self:
        """Run the search and keep its ensemble.

        `validation_data` is `(X, y)` or `(X, y, sample_weight)`, used for validation instead of folds of `X`.
        """
        budget, strategy = self._budget(), self._strategy()
        plan = self._plan(None if validation_data is None else 1)
        dataset = self._dataset(X, y, sample_weight, first=True)
        split = self._split(len(dataset))
        if validation_data is not None:
            dataset, split = self._given_parts(dataset, validation_data)
        seed = self._seed()
        study = search_in(
            self._space(dataset, split),
            dataset,
            strategy=strategy,
            budget=budget,
            key=keys.from_seed(seed),
            metric=self.metric,
            class_weight=self.class_weight,
            plan=plan,
            nested=self.nested,
            describe=Description(baselines=False, importance=False),
            options=StudyOptions(
                on=self.on,
                slots=BySize(),  # measured ones could differ from fit to fit, and with them the last digits
                watch=_Lines() if self.verbose else silent,
                say=(lambda plan: print(f"plan: {plan}")) if self.verbose else silent,
                settings={"budget": str(budget), "seed": seed},
            ),
        )
        return self._keep(study)

    def _keep(self, study: Study) -> Self:
        """Store the study; warn or raise an error if it left no network."""
        if study.predictor is None:
            if study.outcome == "interrupted":
                raise KeyboardInterrupt
            if study.trials and all(trial.outcome == "failed" for trial in study.trials):
                raise RequestError(f"no trial could be trained: {study.trials[0].reason}")
        self.study_ = study
        self.predictor_: AbstractPredictor | None = study.predictor
        winner = study.winning_trial
        self.best_recipe_: Recipe | None = None if winner is None else winner.recipe
        if study.predictor is None:
            warnings.warn(self._verdict(), ConvergenceWarning, stacklevel=3)
        elif study.outcome == "interrupted":
            warnings.warn("the search was interrupted: the best networks so far answer.", UserWarning, stacklevel=3)
        return self


class AutoClassifier(ClassTargets, AutoEstimator):
    """A classifier that tunes itself: a search within a budget, and an ensemble of the networks it trained.

    `y` is as for `Classifier`: classes of any type, or an indicator matrix of labels.

    Parameters
    ----------
    budget
        How much to search: a number of trials ("8 trials", of five to eight networks each), which makes `fit`
        deterministic, or a time ("90s", "10min", "2h").
    strategy
        How trials are chosen: a strategy of `gradwise.searching`, such as `Random()` or `OptunaSampler("tpe")`. None
        tries the recommended recipe first, then others near it.
    space
        Where to search. None is `gradwise.defaults.search_space`. A mapping from paths to ranges, as strings
        ("log(1e-4, 1e-1)") or priors (`LogUniform(1e-4, 1e-1)`), searches these; any other value is fixed:
        `{"model.widths": (64,), "optimiser": Sgd(), "optimiser.learning_rate": "log(1e-3, 1)"}`. A `gradwise.Space`
        has its own recipe, whose split is ignored.
    finalists, seeds
        For a committee with finals: how many of the best settings are trained again, and with how many seeds each.
    committee
        Which networks predict: "ensemble" (a weighted ensemble over all trials), "best" (those of the best trial),
        "cheapest" (those of the cheapest trial within one standard error of the best: fewest parameters, then fewest
        examples) or "none" (one of the best trial's). With finals: "seeds" (those of the chosen setting), "bagging"
        (each trained on its own bootstrap sample), "inputs" (each sees some inputs) or "contenders" (the best of
        different settings).
    batch_size
        "auto" chooses the mini-batch size at the end, by the time that each size takes to reach the same score, and
        tunes it together with the learning rate. None is the recommended size; `space={"batches.size": 64}` sets it.
    nested
        Whether to estimate the error of the whole search by nested cross-validation, from a share of the budget:
        `study_.estimates`. `cross_val_score` does the same from outside.
    metric, class_weight
        As for `Classifier`.
    validation_fraction
        The share of the rows held out for validation if there are no folds. From 50 rows on, each trial is trained on
        several folds and scored on all rows. Fewer than 20 rows are too few to hold any out: trials are scored on the
        training rows, and capacity is not searched, because training error always prefers more of it.
    on
        Where to train: "here", "workers:4" (processes), "ray", "ray://host:port"; None chooses.
    verbose
        Whether to print a line at the end of each trial.
    random_state
        As for `Classifier`; the seed that was used is `study_.seed`.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_
        As seen in `fit`. For labels, `classes_` numbers the columns of `y`.
    study_
        The record of the search: its trials, winner, estimates, findings and advice.
    best_recipe_
        The chosen recipe, ready for `gradwise.fit`; None if no trial left a network.
    predictor_
        The network or committee that predicts; None if no trial left a network, and then `predict` says why.
    """

    def __init__(
        self,
        budget: Any = "8 trials",
        *,
        strategy: Any = None,
        space: Any = None,
        finalists: int = 3,
        seeds: int = 5,
        committee: str = "ensemble",
        batch_size: str | None = None,
        nested: bool = False,
        metric: str | None = None,
        class_weight: Any = None,
        validation_fraction: float = 0.2,
        on: str | None = "here",
        verbose: bool | int = False,
        random_state: Any = None,
    ):
        self.budget = budget
        self.strategy = strategy
        self.space = space
        self.finalists = finalists
        self.seeds = seeds
        self.committee = committee
        self.batch_size = batch_size
        self.nested = nested
        self.metric = metric
        self.class_weight = class_weight
        self.validation_fraction = validation_fraction
        self.on = on
        self.verbose = verbose
        self.random_state = random_state


class AutoRegressor(NumberTargets, AutoEstimator):
    """A regressor that tunes itself: a search within a budget, and an ensemble of the networks it trained.

    `y` is as for `Regressor`: one number for each row, or several.

    Parameters
    ----------
    metric
        As for `Regressor`.
    budget, strategy, space, finalists, seeds, committee, batch_size, nested, validation_fraction, on, verbose,
    random_state
        As for `AutoClassifier`.

    Attributes
    ----------
    n_features_in_, feature_names_in_, study_, best_recipe_, predictor_
        As for `AutoClassifier`.
    """

    def __init__(
        self,
        budget: Any = "8 trials",
        *,
        strategy: Any = None,
        space: Any = None,
        finalists: int = 3,
        seeds: int = 5,
        committee: str = "ensemble",
        batch_size: str | None = None,
        nested: bool = False,
        metric: str | None = None,
        validation_fraction: float = 0.2,
        on: str | None = "here",
        verbose: bool | int = False,
        random_state: Any = None,
    ):
        self.budget = budget
        self.strategy = strategy
        self.space = space
        self.finalists = finalists
        self.seeds = seeds
        self.committee = committee
        self.batch_size = batch_size
        self.nested = nested
        self.metric = metric
        self.validation_fraction = validation_fraction
        self.on = on
        self.verbose = verbose
        self.random_state = random_state
