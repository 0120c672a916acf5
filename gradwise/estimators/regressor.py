"""`Regressor`: a network for one or several numbers."""

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array, check_is_fitted

from .. import defaults
from ..runtime.errors import RequestError
from ..specs.dataset import Numbers, Task
from ..specs.recipe import Recipe
from .base import Estimator, NetworkEstimator


class NumberTargets(RegressorMixin, Estimator):
    """Targets that are one or several numbers."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _check_targets(self, y: Any) -> np.ndarray:
        finite = "allow-nan" if self._takes_unlabelled() else True
        checked = check_array(y, ensure_2d=False, dtype="numeric", ensure_all_finite=finite, input_name="y")
        return np.asarray(checked, np.float64)

    def _learn_task(self, targets: np.ndarray) -> Task:
        self._flat = targets.ndim == 1
        return Numbers(("y",) if self._flat else tuple(f"y{number}" for number in range(targets.shape[1])))

    def _encode_targets(self, targets: np.ndarray, task: Task) -> np.ndarray:
        columns = targets.reshape(len(targets), -1)
        if columns.shape[1] != task.outputs:
            raise RequestError(f"y has {columns.shape[1]} columns, but training began with {task.outputs}.")
        return columns

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R²; warns if `fit` saw most of the rows."""
        check_is_fitted(self)
        self._warn_of_used(X)
        return float(super().score(X, y, sample_weight))

    def predict(self, X: Any) -> np.ndarray:
        """The predicted numbers, (n,) or (n, k) like `y`."""
        predictions = self._predictions(X)
        return predictions.ravel() if self._flat else predictions


class Regressor(NumberTargets, NetworkEstimator):
    """A neural network regressor that works well without tuning.

    A `y` of shape (n, k) holds k numbers per row; predictions have the dimensions of `y`. With a semi-supervised
    criterion, NaN means that a row's number is unknown.

    Parameters
    ----------
    metric
        What early stopping follows and the record reports: "rmse", "mae" or "r2".
    model, optimiser, batches, criterion, scaler, stopping
        As for `Classifier`.
    validation_fraction, warm_start, max_time, verbose, random_state
        As for `Classifier`.

    Attributes
    ----------
    n_features_in_, feature_names_in_, record_, history_, n_iter_
        As for `Classifier`.
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
        self.warm_start = warm_start
        self.max_time = max_time
        self.verbose = verbose
        self.random_state = random_state

    def _recommended(self) -> Recipe:
        return defaults.table("numbers")

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train for one pass over these rows, without validation. The first call fixes the scaler and the network."""
        return self._partial_fit(X, y, sample_weight, None)
