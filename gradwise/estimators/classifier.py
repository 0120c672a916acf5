"""`Classifier`: a network for one of several classes, or for any number of labels at once."""

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d

from .. import defaults
from ..runtime.errors import RequestError
from ..specs.dataset import UNLABELLED, Classes, Labels, Task
from ..specs.recipe import Recipe
from .base import Estimator, NetworkEstimator


def _check_discrete(targets: np.ndarray) -> None:
    """Raise an error for continuous numbers. Classes that are neither numbers nor strings need only an order."""
    natural = np.array(targets.tolist()) if targets.dtype == object else targets
    if natural.dtype != object:
        check_classification_targets(natural)


def _sorted_classes(targets: np.ndarray) -> np.ndarray:
    """The distinct classes in order, with their original type."""
    try:
        return np.unique(targets)
    except TypeError:
        kinds = ", ".join(sorted({type(value).__name__ for value in targets}))
        raise RequestError(f"Unknown label type: y mixes {kinds}, which have no common order.") from None


class ClassTargets(ClassifierMixin, Estimator):
    """Targets that are classes or labels, predicted in their original form."""

    classes_: np.ndarray

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _check_targets(self, y: Any) -> np.ndarray:
        checked = check_array(y, accept_sparse="csr", ensure_2d=False, dtype=None, input_name="y")
        sparse = hasattr(checked, "toarray")
        if sparse or (checked.ndim == 2 and type_of_target(checked) == "multilabel-indicator"):
            check_classification_targets(checked)
            return np.asarray(checked.toarray() if sparse else checked)
        targets = np.asarray(column_or_1d(checked, warn=True))
        _check_discrete(targets[self._told(targets)])
        return targets

    def _told(self, targets: np.ndarray) -> np.ndarray:
        """Which rows have a class. -1 is an ordinary class, unless the criterion uses unlabelled rows."""
        if not self._takes_unlabelled() or targets.dtype.kind not in "ifO":
            return np.ones(len(targets), bool)
        return np.asarray(targets != UNLABELLED, bool)

    def _learn_task(self, targets: np.ndarray, classes: Any = None) -> Task:
        if targets.ndim == 2:
            self.classes_ = np.arange(targets.shape[1])
            self._label_type = targets.dtype
            return Labels(tuple(f"label {number}" for number in self.classes_))
        self.classes_ = _sorted_classes(targets[self._told(targets)] if classes is None else column_or_1d(classes))
        if len(self.classes_) < 2:
            raise RequestError(f"a classifier needs at least two classes, but y holds one class only: {self.classes_}.")
        return Classes(self.classes_)

    def _encode_targets(self, targets: np.ndarray, task: Task) -> np.ndarray:
        if (targets.ndim == 2) != (task.kind == "labels") or (targets.ndim == 2 and targets.shape[1] != task.outputs):
            raise RequestError(f"y has shape {targets.shape}, but training began with {task.outputs} {task.kind}.")
        if targets.ndim == 2:
            return (targets != 0).astype(np.int64)
        told = self._told(targets)
        known = {label: number for number, label in enumerate(self.classes_.tolist())}
        unknown = [label for label in _sorted_classes(targets[told]).tolist() if label not in known]
        if unknown:
            raise RequestError(f"y holds the class {unknown[0]!r}, which training did not begin with.")
        encoded = np.full(len(targets), UNLABELLED)
        encoded[told] = np.searchsorted(self.classes_, targets[told])
        return encoded

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows whose class, or whose every label, is correct; warns if `fit` saw most of the rows."""
        check_is_fitted(self)
        self._warn_of_used(X)
        return float(super().score(X, y, sample_weight))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row, or 0 and 1 for each label."""
        probabilities = self._predictions(X)
        if self._task.kind == "labels":
            return (probabilities > 0.5).astype(self._label_type)
        return np.asarray(self.classes_[probabilities.argmax(1)])

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class (n, k), in the order of `classes_`, or of each label (n, k)."""
        return self._predictions(X)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self._predictions(X))


class Classifier(ClassTargets, NetworkEstimator):
    """A neural network classifier that works well without tuning.

    A `y` of one column holds classes, which are predicted with their original type; an indicator matrix (n, k) holds k
    labels, any number of them per row. With a semi-supervised criterion, -1 means that a row's class is unknown.

    Parameters
    ----------
    model, optimiser, batches, criterion, scaler, stopping
        Parts of the recipe; None is the recommended one (`gradwise.defaults.for_data`). Their knobs are nested
        parameters: `model__widths`, `optimiser__learning_rate`, `batches__size`, ...
    validation_fraction
        The share of the rows held out for validation. With 0, or with fewer than 20 rows, the training rows are used
        for validation too.
    metric
        What early stopping follows and the record reports: "error_rate", "accuracy", "f1_macro", "log_loss", "auc",
        "balanced_error_rate", "precision_macro", "recall_macro" or "average_precision".
    class_weight
        None, "balanced", or a mapping from class to weight.
    warm_start
        Whether `fit` continues from the current network, with its optimiser state and its scaler.
    max_time
        Seconds after which training ends with the best network so far.
    verbose
        Whether to print a line at each validation.
    random_state
        An integer is the seed of all randomness: the same one gives the same network. None draws a new seed each
        time from NumPy's global generator; `record_.seed` is the seed used.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_
        As seen in `fit`. For labels, `classes_` numbers the columns of `y`.
    record_
        The record of the run: its outcome, metrics, findings, recipe and predictor.
    history_
        One list for each column of the training curves.
    examples_
        A frame with a row for each example: its losses, when it was learned, whether its label is probably wrong.
    n_iter_
        Passes over the training rows.
    """

    def __init__(
        self,
        *,
        model: Any = None,
        optimiser: Any = None,
        batches: Any = None,
        criterion: Any = None,
        scaler: Any = None,
        stopping: Any = None,
        validation_fraction: float = 0.1,
        metric: str | None = None,
        class_weight: Any = None,
        warm_start: bool = False,
        max_time: float | None = None,
        verbose: bool | int = False,
        random_state: Any = None,
    ):
        self.model = model
        self.optimiser = optimiser
        self.batches = batches
        self.criterion = criterion
        self.scaler = scaler
        self.stopping = stopping
        self.validation_fraction = validation_fraction
        self.metric = metric
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.max_time = max_time
        self.verbose = verbose
        self.random_state = random_state

    def _recommended(self) -> Recipe:
        return defaults.table("classes")

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train for one pass over these rows, without validation.

        The first call needs all `classes` that will ever occur, and fixes them, the scaler and the network. An
        indicator matrix needs no `classes`.
        """
        if isinstance(self.class_weight, str):
            raise RequestError('`class_weight="balanced"` needs all rows at once. Give `partial_fit` a mapping.')
        task = None
        if not hasattr(self, "record_"):
            many = len(np.shape(y)) == 2 and np.shape(y)[1] > 1
            if classes is None and not many:
                raise RequestError("the first call of `partial_fit` needs `classes`: all that will ever come.")
            task = None if classes is None or many else self._learn_task(np.empty(0), classes)
        elif classes is not None and not np.array_equal(_sorted_classes(np.asarray(classes)), self.classes_):
            raise RequestError(f"`classes` is not what training began with: {self.classes_}.")
        return self._partial_fit(X, y, sample_weight, task)
