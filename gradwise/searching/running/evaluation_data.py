"""The data on which all trials of a study are compared: one split, drawn once, and examples as each recipe scales them.

The split depends on the study's key alone, so every trial, every worker and every later run uses the same one. The test
set stays untouched until the search is over (row E2).

With `folds` a trial is several trainings, one for each fold of the other rows: on small data one validation set would
be too noisy to choose by. Its score is over all examples, each scored by the network that was not trained on it.

Examples without a target cannot be scored: every training set has all of them, and no other set has any (row A8).
"""

import dataclasses
import functools
import math
from typing import Any, Literal, Protocol

import jax
import numpy as np
from jaxtyping import Array, Key

from ...criteria.linear_probe import Probed
from ...curvature.objective import Examples
from ...data.splits import GroupHoldOut, HoldOut, deal_folds, join_parts
from ...evaluation.metrics import BALANCED
from ...records.score_scale import ScoreScale
from ...runtime import keys
from ...specs.adapters import as_criterion
from ...specs.contracts import AbstractCriterion, AbstractScaler, AbstractSplit
from ...specs.dataset import FEW_ROWS, Dataset, InputLayout, Task, refuse_several
from ...specs.fitted_scaler import FittedScaler
from ...specs.recipe import Recipe
from ...training.prepare import (
    CLASS_WEIGHTS,
    is_trained_on,
    place_examples,
    sparse_slots,
    split_labelled,
    target_units,
    weights_of_classes,
)

Variant = tuple[str, int]
WHOLE: Variant = ("whole", 0)
PROBE_METRICS = ("probe_error_rate", "probe_rmse")  # of features, by a linear probe of classes or of numbers
PROBE_ROWS = 10_000  # training examples that a probe is fitted on
_FINAL_FOLDS = 5
_INPUT_SHARE = 0.7  # of the inputs that a member of a committee of input subsets sees


class SelectedInputs(FittedScaler):
    """A fitted scaler of which some outputs are held at 0: the network cannot see those inputs."""

    scaler: FittedScaler
    seen: Any

    def map(self, examples: Any, library: Any) -> Any:
        return self.scaler.map(examples, library) * self.seen

    def layout(self, shape: tuple[int, ...]) -> InputLayout | None:
        return self.scaler.layout(shape)

    def describe(self) -> list[str]:
        return [*self.scaler.describe(), f"this network uses {int(np.sum(self.seen))} of {np.size(self.seen)} inputs."]


class JobData(Protocol):
    """What a device runner needs of the data: the task, the study's key, and the examples of each variant of a job."""

    @property
    def task(self) -> Task: ...

    @property
    def key(self) -> Key[Array, ""]: ...

    @property
    def dealt(self) -> int: ...

    @property
    def final_variants(self) -> tuple[Variant, ...]: ...

    def slots(self, recipe: Recipe) -> int: ...

    def place(self, spec: AbstractScaler, variant: Variant = WHOLE, slots: int = 0) -> tuple[Examples, Examples]: ...


def scale_of(recipe: Recipe, train: Dataset, metric: str = "") -> ScoreScale:
    """How the scores of networks are written that were trained on these rows: errors of a number in its unit."""
    deviations = np.ravel(target_units(train)[1]) if train.task.kind == "numbers" else np.ones(1)
    return ScoreScale.of(recipe, train.task.kind, metric, float(deviations[0]) if len(deviations) == 1 else 1.0)


@dataclasses.dataclass(frozen=True)
class EvaluationData:
    """The parts of a data set, and what turns them into examples on the device."""

    train: Dataset
    valid: Dataset
    test: Dataset | None
    metric: str
    class_weight: CLASS_WEIGHTS
    words: tuple[int, ...]  # of the study's key: a key itself does not travel between processes
    folds: int = 1
    split: AbstractSplit | None = None  # what drew the parts

    @staticmethod
    def of(
        dataset: Dataset,
        split: AbstractSplit,
        *,
        metric: str,
        class_weight: CLASS_WEIGHTS = None,
        folds: int = 1,
        criterion: AbstractCriterion | None = None,
        key: Key[Array, ""],
    ) -> "EvaluationData":
        """The criterion says whether examples without a target may be there."""
        refuse_several(dataset.task, "a search")
        train, valid, test = split_labelled(split, criterion, dataset, key=keys.named(key, "split"))
        words = tuple(int(word) for word in np.ravel(jax.random.key_data(key)))
        return EvaluationData(train, valid, test, metric, class_weight, words, folds, split)

    @property
    def key(self) -> Key[Array, ""]:
        return jax.random.wrap_key_data(jax.numpy.asarray(self.words, jax.numpy.uint32))

    @property
    def task(self) -> Task:
        return self.train.task

    @property
    def units(self) -> tuple[np.ndarray, np.ndarray]:
        return target_units(self.train)

    @functools.cached_property
    def told(self) -> Dataset:
        """The training examples that have a target."""
        known = self.train.labelled
        return self.train if known.all() else self.train.take(np.flatnonzero(known))

    @functools.cached_property
    def untold(self) -> Dataset | None:
        """Those that have none, where there are any."""
        known = self.train.labelled
        return None if known.all() else self.train.take(np.flatnonzero(~known))

    @functools.cached_property
    def pool(self) -> Dataset:
        """All that may be both learned from and chosen by."""
        return self.told if self.told is self.valid else join_parts(self.told, self.valid)[0]

    @functools.cached_property
    def _folds(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return deal_folds(self.pool, self.dealt, key=keys.named(self.key, "inner folds"))

    @property
    def dealt(self) -> int:
        """Folds that the pool can be dealt into: those that judge a trial, or those of the finalists."""
        return self.folds if self.folds > 1 else min(_FINAL_FOLDS, len(self.pool))

    @property
    def final_variants(self) -> tuple[Variant, ...]:
        """The trainings of a finalist: each fold's network learns from what the others are judged by, so that the
        committee has seen all of the pool. Parts that were given, or that follow time, stay as they are."""
        folded = self.can_be_dealt or self.folds > 1
        return tuple(("fold", number) for number in range(self.dealt)) if folded else (WHOLE,)

    @property
    def can_be_dealt(self) -> bool:
        """Whether the pool may be dealt into folds at random, and has rows enough for them."""
        return isinstance(self.split, HoldOut | GroupHoldOut) and len(self.pool) >= 10 * _FINAL_FOLDS

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The trainings that one trial is made of."""
        return (WHOLE,) if self.folds == 1 else tuple(("fold", number) for number in range(self.folds))

    def judged_rows(self, variant: Variant) -> np.ndarray:
        """The rows of the pool, or of the validation set where there are no folds, that a variant is judged by."""
        return self._folds[variant[1]][1] if variant[0] == "fold" else np.arange(len(self.valid))

    @property
    def judged(self) -> Dataset:
        """The examples that trials are chosen by."""
        return self.pool if self.folds > 1 else self.valid

    @functools.cached_property
    def judged_on(self) -> Literal["train", "valid"]:
        """Whether the rows that trials are chosen by were trained on (row E19): folds of one set of rows are not."""
        if self.folds > 1 and self.told is self.valid:
            return "valid"
        return "train" if is_trained_on(self.valid, self.told) else "valid"

    @property
    def can_estimate(self) -> bool:
        """Whether scores of trials tell the error on new data: not those of rows that were trained on, nor of few."""
        return self.judged_on == "valid" and len(self.pool) >= FEW_ROWS

    def parts(self, variant: Variant = WHOLE) -> tuple[Dataset, Dataset]:
        """What a variant learns from and what it is judged by."""
        if variant[0] == "fold":
            return self._fold(variant[1])
        if variant[0] == "bag":
            random = keys.generator(keys.of_trial(keys.named(self.key, "bag"), variant[1]))
            return self.train.take(np.sort(random.integers(0, len(self.train), len(self.train)))), self.valid
        return self.train, self.valid

    def _fold(self, number: int) -> tuple[Dataset, Dataset]:
        """One fold, in the sizes that all folds have, so that they share one program.

        The larger training sets lose an example; the smaller validation sets get one that counts nothing.
        """
        train, valid = self._folds[number]
        least = min(len(others) for others, _ in self._folds)
        most = max(len(own) for _, own in self._folds)
        if self.pool.groups is not None or most - len(valid) > 1:
            return self._with_untold(self.pool.take(train)), self.pool.take(valid)
        judged = self.pool.take(np.append(valid, valid[: most - len(valid)]))
        if most > min(len(own) for _, own in self._folds):
            weights = np.ones(len(judged)) if judged.weights is None else np.array(judged.weights, np.float64)
            weights[len(valid) :] = 0.0
            judged = dataclasses.replace(judged, weights=weights)
        return self._with_untold(self.pool.take(train[:least])), judged

    def _with_untold(self, train: Dataset) -> Dataset:
        return train if self.untold is None else join_parts(train, self.untold)[0]

    def scaler(self, spec: AbstractScaler, variant: Variant = WHOLE) -> FittedScaler:
        """The scaler fitted on the training set; for the variant ("inputs", number) some inputs are hidden."""
        train, _ = self.parts(variant)
        fitted = spec.fit(train.inputs, train.columns)
        if variant[0] != "inputs":
            return fitted
        shape = fitted.apply(train.inputs[:1]).shape[1:]
        width = int(np.prod(shape))
        random = keys.generator(keys.of_trial(keys.named(self.key, "inputs"), variant[1]))
        seen = np.zeros(width, np.float32)
        seen[random.permutation(width)[: max(1, round(_INPUT_SHARE * width))]] = 1.0
        return SelectedInputs(fitted, seen.reshape(shape))

    def slots(self, recipe: Recipe) -> int:
        """The slots of a row if the recipe trains on sparse rows; 0 if on dense ones. The same for every variant."""
        return sparse_slots(recipe, (self.train, self.valid, self.test))

    def place(self, spec: AbstractScaler, variant: Variant = WHOLE, slots: int = 0) -> tuple[Examples, Examples]:
        """Training and validation examples on the device, as sparse rows of so many `slots`, or dense."""
        train, valid = self.parts(variant)
        scaler = self.scaler(spec, variant)
        by_class = weights_of_classes(self.class_weight, self.train)
        judged = self._judging_weights(valid)
        weighted = ((train, by_class), (valid, judged))
        placed = [place_examples(part, scaler, self.units, weights, slots) for part, weights in weighted]
        return placed[0], placed[1]

    def as_judged(self, recipe: Recipe) -> Recipe:
        """The recipe as it is trained: where the study chooses features by a linear probe, that judges it."""
        if self.metric not in PROBE_METRICS:
            return recipe
        classes = self.train.task.outputs if self.train.task.kind == "classes" else 0
        criterion: Any = as_criterion(recipe.criterion)
        return dataclasses.replace(recipe, criterion=Probed(criterion, classes=classes, rows=PROBE_ROWS))

    def _judging_weights(self, part: Dataset) -> np.ndarray | None:
        """How much each class counts when a network is judged by this part."""
        balanced = self.metric in BALANCED
        return weights_of_classes("balanced", part) if balanced else weights_of_classes(self.class_weight, self.train)

    def scale(self, recipe: Recipe) -> ScoreScale:
        """How the scores of this recipe's networks are named and written."""
        return scale_of(recipe, self.train, self.metric)

    def chance(self, kind: str) -> float:
        """The score of a prediction that does not look at the inputs, on the examples that trials are chosen by.

        `kind` is what a score is: the "error", the "loss", or the "squared" or "absolute" error of a number. Without
        a target there is no such prediction.
        """
        if self.train.task.kind == "inputs":
            return math.nan
        told, judged, rows = self.told.targets, self.judged.targets, len(self.told)
        by_class = None
        if self.train.task.kind == "classes":
            shares = (np.bincount(told, minlength=self.train.task.outputs) + 1) / (rows + self.train.task.outputs)
            each = -np.log(shares[judged]) if kind == "loss" else judged != shares.argmax()
            by_class = self._judging_weights(self.judged)
        elif self.train.task.kind == "labels":
            share = (told.sum(0) + 1) / (rows + 2)  # one more of each: what was never seen is not impossible
            right = np.where(judged > 0.5, share, 1 - share)
            each = np.mean(-np.log(right) if kind == "loss" else (judged > 0.5) != (share > 0.5), axis=1)
        else:
            mean, deviation = self.units
            error = np.abs((judged - mean) / deviation)
            each = np.mean(error if kind == "absolute" else error**2, axis=1)
        weights = np.ones(len(each)) if self.judged.weights is None else self.judged.weights
        return float(np.average(each, weights=weights if by_class is None else weights * by_class[judged]))
