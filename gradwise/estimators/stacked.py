"""Layers learned one by one without labels, then used: as features, or fine-tuned with labels (row A1).

    StackedAutoEncoder("denoising:100x2", random_state=0).fit_transform(X)
    StackedClassifier("denoising:100x2", random_state=0).fit(X, y).predict(X)
    StackedClassifier(layers, unlabelled=-1).fit(X, y)           # rows of class -1 are used in pre-training only

Layers are given as a string, `kind:units` or `kind:unitsxdepth`, several of them separated by commas, or as a list of
recipes, bottom up. Pre-training sees neither labels nor validation rows.
"""

import dataclasses
import math
from typing import Any, Self

import numpy as np
from jaxtyping import Array, Key
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_array, check_is_fitted

from .. import defaults
from ..evaluation.metrics import check_metric
from ..pretraining.layer_recipes import LEARNERS, parse_layers, recipes_of_layers
from ..pretraining.stack import Encoder, fit_pretrained, pretrain_layers, widths_of
from ..runtime import keys
from ..runtime.errors import RequestError
from ..specs.contracts import AbstractSplit
from ..specs.dataset import FEW_ROWS, UNLABELLED, Dataset, Task
from ..specs.fitted_scaler import FittedScaler
from ..specs.recipe import Recipe
from ..training.predictor import outputs_of, scaled_for
from .base import NetworkEstimator, TrainingRows
from .classifier import ClassTargets
from .features import WithoutTargets, decoded, refuse_one_way, scaled_to_unit
from .regressor import NumberTargets

LAYERS = "denoising:100x2"


def _checked_layers(layers: Any) -> list[Recipe]:
    if not isinstance(layers, (list, tuple)) or not layers or not all(isinstance(one, Recipe) for one in layers):
        raise RequestError(
            f"`layers` must be a text such as {LAYERS!r}, or a list of recipes from the bottom up; got {layers!r:.80}."
        )
    return list(layers)


def _widths(layers: Any) -> tuple[int, ...]:
    """How many units each hidden layer will have."""
    if isinstance(layers, str):
        return tuple(units for _, units in parse_layers(layers))
    return tuple(width for recipe in _checked_layers(layers) for width in widths_of(recipe))


class StackedEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, NetworkEstimator):
    """What all stacks share: their layers, and the features at the top."""

    layers: Any
    warm_start = False

    def _layer_recipes(self, scaler: Any, train: Dataset, split: AbstractSplit, key: Key[Array, ""]) -> list[Recipe]:
        """A recipe for each layer. Too few rows to hold some out are not split again."""
        if isinstance(self.layers, str):
            found = recipes_of_layers(self.layers, scaled_to_unit(scaler, train, split, key), train.task.kind)
        else:
            found = _checked_layers(self.layers)
        if len(train) < FEW_ROWS or self.validation_fraction == 0:
            found = [dataclasses.replace(recipe, split=TrainingRows()) for recipe in found]
        return found

    def _features(self) -> tuple[FittedScaler, Encoder]:
        """The scaler of raw rows, and the layers up to the features."""
        predictor = self.record_.predictor
        return predictor.scaler, Encoder(predictor.network.hidden_layers)

    @property
    def _n_features_out(self) -> int:
        return int(self._features()[1].layers[-1].bias.shape[0])

    def transform(self, X: Any) -> np.ndarray:
        """The features of each row at the top of the stack (n, features)."""
        check_is_fitted(self)
        inputs, _ = self._read_inputs(X, first=False)
        scaler, encoder = self._features()
        return outputs_of(encoder, scaled_for(encoder, scaler, inputs))


class TunedStack(StackedEstimator):
    """The common part of `StackedClassifier` and `StackedRegressor`."""

    unlabelled: Any

    def _recipe(self, dataset: Dataset, split: AbstractSplit, key: Key[Array, ""]) -> Recipe:
        kind = dataset.task.kind
        recipe = defaults.fine_tuning(kind, _widths(self.layers), split=split, **self._given())
        return recipe if self.metric is None else defaults.following(recipe, check_metric(self.metric, kind))

    def fit(self, X: Any, y: Any, sample_weight: Any = None, validation_data: Any = None) -> Self:
        """Pre-train the layers, add an output layer and train the whole network.

        `validation_data` is `(X, y)` or `(X, y, sample_weight)`, used for validation instead of a part of `X`.
        Pre-training holds out its own validation rows from the rest.
        """
        options = self._run_options()
        rows = self._dataset(X, y, sample_weight, first=True)
        known = rows.labelled
        if not known.any():
            raise RequestError("every row of y is `unlabelled`: there is nothing to fine-tune by.")
        labelled = rows if known.all() else rows.take(np.flatnonzero(known))
        spare = None if known.all() else rows.take(np.flatnonzero(~known))
        dataset, split = labelled, self._split(len(labelled))
        if validation_data is not None:
            dataset, split = self._given_parts(labelled, validation_data)
        key = keys.from_seed(self._seed())
        recipe = self._recipe(dataset, split, key)
        record, self.stack_ = fit_pretrained(
            recipe,
            dataset,
            self._layer_recipes(recipe.scaler, dataset, split, key),
            key=key,
            metric=self.metric,
            class_weight=self.class_weight,
            options=options,
            unlabelled=spare,
        )
        return self._keep(record, math.ceil(record.outcome.age_examples / record.data.rows.train))


class StackedClassifier(ClassTargets, TunedStack):
    """A classifier whose layers are learned one by one without labels, then fine-tuned together with them.

    Parameters
    ----------
    layers
        What to pre-train, bottom up: a string such as "denoising:100x2", or a list of recipes. The layers of
        "supervised:100x2" are learned one by one too, but with the labels.
    model, optimiser, batches, criterion, scaler, stopping
        Parts of the fine-tuning recipe; None is the recommended one. Of `model`, an `Mlp`, only the dropout and the
        output are used: the hidden layers are the pre-trained ones. Pre-training uses the scaler too.
    unlabelled
        The class in `y` that means "unknown", such as -1: these rows are used in pre-training only, by layers that
        need no labels. None: every row is labelled, and -1 is an ordinary class.
    validation_fraction
        The share of the labelled rows held out for validation. With 0, or with fewer than 20 rows, the training rows
        are used for validation, in pre-training too.
    max_time
        Seconds after which the training of each layer, and the fine-tuning, ends with the best so far.
    metric, class_weight, verbose, random_state
        As for `Classifier`.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_, record_, history_, n_iter_
        As for `Classifier`, of the fine-tuning.
    stack_
        The layers before fine-tuning; `stack_.records` are the records of their training. `stack_.encode` gives the
        features before fine-tuning, `transform` those after it.
    """

    def __init__(
        self,
        layers: Any = LAYERS,
        *,
        model: Any = None,
        optimiser: Any = None,
        batches: Any = None,
        criterion: Any = None,
        scaler: Any = None,
        stopping: Any = None,
        unlabelled: Any = None,
        validation_fraction: float = 0.2,
        metric: str | None = None,
        class_weight: Any = None,
        max_time: float | None = None,
        verbose: bool | int = False,
        random_state: Any = None,
    ):
        self.layers = layers
        self.model = model
        self.optimiser = optimiser
        self.batches = batches
        self.criterion = criterion
        self.scaler = scaler
        self.stopping = stopping
        self.unlabelled = unlabelled
        self.validation_fraction = validation_fraction
        self.metric = metric
        self.class_weight = class_weight
        self.max_time = max_time
        self.verbose = verbose
        self.random_state = random_state

    def _recommended(self) -> Recipe:
        return defaults.fine_tuning("classes", _widths(LAYERS))

    def _known(self, targets: np.ndarray) -> np.ndarray:
        """Which rows have a class."""
        if self.unlabelled is None:
            return np.ones(len(targets), bool)
        if targets.ndim == 2:
            raise RequestError("`unlabelled` names a class, but y holds several labels for each row.")
        return np.array([label != self.unlabelled for label in targets.tolist()], bool)

    def _learn_task(self, targets: np.ndarray, classes: Any = None) -> Task:
        known = self._known(targets)
        if not known.any():
            raise RequestError(f"every row of y is {self.unlabelled!r}, `unlabelled`: there is nothing to tune by.")
        return super()._learn_task(targets[known], classes)

    def _encode_targets(self, targets: np.ndarray, task: Task) -> np.ndarray:
        known = self._known(targets)
        encoded = super()._encode_targets(targets[known], task)
        if known.all():
            return encoded
        whole = np.full(len(targets), UNLABELLED)
        whole[known] = encoded
        return whole


class StackedRegressor(NumberTargets, TunedStack):
    """A regressor whose layers are learned one by one without targets, then fine-tuned together with them.

    Parameters
    ----------
    metric
        As for `Regressor`.
    unlabelled
        The number in `y` that means "unknown", such as `numpy.nan`: these rows are used in pre-training only.
    layers, model, optimiser, batches, criterion, scaler, stopping, validation_fraction, max_time, verbose, random_state
        As for `StackedClassifier`.

    Attributes
    ----------
    n_features_in_, feature_names_in_, record_, history_, n_iter_, stack_
        As for `StackedClassifier`.
    """

    def __init__(
        self,
        layers: Any = LAYERS,
        *,
        model: Any = None,
        optimiser: Any = None,
        batches: Any = None,
        criterion: Any = None,
        scaler: Any = None,
        stopping: Any = None,
        unlabelled: Any = None,
        validation_fraction: float = 0.2,
        metric: str | None = None,
        max_time: float | None = None,
        verbose: bool | int = False,
        random_state: Any = None,
    ):
        self.layers = layers
        self.model = model
        self.optimiser = optimiser
        self.batches = batches
        self.criterion = criterion
        self.scaler = scaler
        self.stopping = stopping
        self.unlabelled = unlabelled
        self.validation_fraction = validation_fraction
        self.metric = metric
        self.max_time = max_time
        self.verbose = verbose
        self.random_state = random_state

    def _recommended(self) -> Recipe:
        return defaults.fine_tuning("numbers", _widths(LAYERS))

    def _check_targets(self, y: Any) -> np.ndarray:
        if self.unlabelled is None:
            return super()._check_targets(y)
        finite: Any = "allow-nan" if math.isnan(self.unlabelled) else True
        targets = check_array(y, ensure_2d=False, dtype=np.float64, ensure_all_finite=finite, input_name="y")
        return np.where(targets == self.unlabelled, np.nan, targets)


class StackedAutoEncoder(WithoutTargets, StackedEstimator):
    """A transformer whose layers are learned one by one, each on the codes of the one below.

    Parameters
    ----------
    layers
        As for `StackedClassifier`.
    scaler
        None is the recommended one, which maps all columns into [0, 1]. Its knobs are nested parameters.
    validation_fraction
        The share of the rows that each layer given as a string holds out for validation; a recipe uses its own split.
        With 0, or with fewer than 20 rows, the training rows are used for validation too.
    max_time, verbose, random_state
        As for `StackedClassifier`.

    Attributes
    ----------
    n_features_in_, feature_names_in_
        As for `Classifier`.
    stack_
        The layers; `stack_.records` are the records of their training.
    """

    metric = None
    _slots = ("scaler",)

    def __init__(
        self,
        layers: Any = LAYERS,
        *,
        scaler: Any = None,
        validation_fraction: float = 0.1,
        max_time: float | None = None,
        verbose: bool | int = False,
        random_state: Any = None,
    ):
        self.layers = layers
        self.scaler = scaler
        self.validation_fraction = validation_fraction
        self.max_time = max_time
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "stack_")

    def _recommended(self) -> Recipe:
        return LEARNERS["denoising"](1, True)

    def _features(self) -> tuple[FittedScaler, Encoder]:
        return self.stack_.scaler, Encoder(self.stack_.layers)

    def fit(self, X: Any, y: Any = None) -> Self:  # type: ignore[override]
        """Learn layer after layer from these rows; `y` is ignored."""
        options = self._run_options()
        rows = self._dataset(X, self._no_targets(X), None, first=True)
        split, scaler, key = self._split(len(rows)), self._part("scaler"), keys.from_seed(self._seed())
        layers = self._layer_recipes(scaler, rows, TrainingRows(), key)
        if isinstance(self.layers, str):
            layers = [dataclasses.replace(recipe, split=split) for recipe in layers]
        self.stack_ = pretrain_layers(layers, rows, scaler.fit(rows.inputs, rows.columns), key=key, options=options)
        return self

    def _can_go_back(self) -> bool:
        if hasattr(self, "stack_"):
            refuse_one_way(list(self.stack_.networks), self.stack_.scaler)
        return True

    @available_if(_can_go_back)  # type: ignore[untyped-decorator]
    def inverse_transform(self, X: Any) -> np.ndarray:
        """The rows that features stand for, in the units of the raw columns: each layer's decoder in turn."""
        check_is_fitted(self)
        return decoded([record.predictor for record in self.stack_.records], self.stack_.scaler, X)
