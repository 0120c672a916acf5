"""How much the model needs each column of a table: the rise of its error when the column's values are shuffled.

    found = measure_importance(predictor.predict, test, "error_rate", part="test", cost=200_000, seed=0)
    found.columns[0].column, found.columns[0].rise, found.columns[0].standard_error

A column is shuffled as it was read, before any scaling, so that a category is one column and not one for each of its
codes, and a text one column with all its words. Two columns that say the same are both called less important: the model
can read either of them (Breiman 2001; Strobl et al. 2008).

On the test set this is no further reading of it. Nothing is chosen by it, neither network nor knob, and the error that
was reported stands: it tells what that error is made of.
"""

import math
from collections.abc import Callable

import numpy as np

from ..records.evidence.fit_evidence import ColumnImportance, Importance
from ..specs.dataset import Dataset, places_of_columns
from .metrics import HIGHER_IS_BETTER, measure

_WORK = 2e10  # parameters x rows: about two seconds on a slow processor
_MOST_ROWS, _FEWEST_ROWS = 2000, 100
_MOST_REPEATS, _FEWEST_REPEATS = 5, 3
_MOST_COLUMNS = 300


def _is_table(data: Dataset) -> bool:
    """Whether the inputs are columns that mean something each, and not pixels or counts of words."""
    named = len(data.columns) == data.inputs.shape[1] and all(one.kind != "pixel" for one in data.columns)
    return len(data.shape) == 1 and not hasattr(data.inputs, "tocsr") and named


def _size(columns: int, rows: int, cost: float) -> tuple[int, int] | None:
    """Rows and repeats that the work allows: fewer rows first, then fewer repeats; nothing where both would be few."""
    allowed = _WORK / (cost * columns)
    for repeats in range(_MOST_REPEATS, _FEWEST_REPEATS - 1, -1):
        most = int(allowed / repeats)
        if most >= min(rows, _FEWEST_ROWS):
            return min(rows, most, _MOST_ROWS), repeats
    return None


def measure_importance(
    predict: Callable[[np.ndarray], np.ndarray], data: Dataset, metric: str, *, part: str, cost: float, seed: int
) -> Importance | None:
    """The importance of each column, by the metric on these rows, or a sample of them; nothing where there is no table.

    `part` is the set they are, `cost` the number of parameters that a prediction takes. With the same seed the same
    rows are drawn and shuffled.
    """
    columns = places_of_columns(data.columns)
    if not _is_table(data) or len(data) < 2 or len(columns) < 2:
        return None
    count = len(columns)
    if count > _MOST_COLUMNS:
        return Importance(metric, part, skipped=f"there are {count:,} columns, more than {_MOST_COLUMNS}")
    size = _size(count, len(data), cost)
    if size is None:
        return Importance(metric, part, skipped=f"{count} columns of so large a model would take too long")
    rows, repeats = size
    random = np.random.default_rng(seed)
    some = data if rows == len(data) else data.take(np.sort(random.choice(len(data), rows, replace=False)))
    orders = [random.permutation(rows) for _ in range(repeats)]  # one for all columns, so that they compare

    def value(predictions: np.ndarray) -> float:
        return measure(some.task, predictions, some.targets, some.weights, (metric,))[metric]

    whole, sign = value(predict(some.inputs)), -1.0 if metric in HIGHER_IS_BETTER else 1.0
    found = []
    for name, places in columns.items():
        shuffled = np.concatenate([some.inputs] * repeats)
        shuffled[:, places] = np.concatenate([some.inputs[order][:, places] for order in orders])
        rises = [sign * (value(each) - whole) for each in np.split(predict(shuffled), repeats)]
        error = float(np.std(rises, ddof=1) / math.sqrt(repeats))
        found.append(ColumnImportance(name, float(np.mean(rises)), error))
    found.sort(key=lambda one: -one.rise)  # stable: equal ones as they were read
    return Importance(metric, part, rows, repeats, tuple(found))
