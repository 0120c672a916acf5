"""Double cross-validation (row E2): the honest estimate of the whole procedure, its choices included, on a small set.

    nested(dataset, 5, learn, key=key)          {"mean": 0.031, "interval": [...], "folds": [...]}

`learn(train, number)` is everything that would be done with a data set: search, choice, committee. It is done anew for
each outer fold on the other folds' examples, and what comes out is measured once on the fold's own. No choice has seen
the examples that it is judged by, and every example judges once.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Array, Key

from ...data.splits import deal_folds as dealt
from ...evaluation.metrics import check_metric, measure
from ...evaluation.trials.selection import nested_estimate
from ...runtime import keys
from ...specs.dataset import Dataset

# With fewer test rows than this, an error rate of 10 % is known to no better than 3.7 points either way (1.96 times
# sqrt(0.1 * 0.9 / 250)), more than a third of itself: two procedures would have to be worlds apart to be told apart.
# Five outer folds test on five times as many rows, to 1.7 points.
_LEAST_TEST_ROWS = 250
_BOUNDS = {"r2": (-math.inf, 1.0), "rmse": (0.0, math.inf), "mae": (0.0, math.inf), "log_loss": (0.0, math.inf)}

Learn = Callable[[Dataset, int], Any]


def is_small(dataset: Dataset, test: float = 0.2) -> bool:
    """Whether one test part, of this fraction, would say too little: fewer than 250 rows.

    Where examples have times, the future is what counts, and folds dealt at random would mix it with the past.
    """
    if dataset.times is not None:
        return False
    rows = len(dataset.test) if dataset.test is not None else round(test * dataset.labelled.sum())
    return rows < _LEAST_TEST_ROWS


def nested(
    dataset: Dataset,
    folds: int,
    learn: Learn,
    *,
    key: Key[Array, ""],
    metric: str | None = None,
    known: Mapping[int, float] | None = None,
    watch: Callable[[int, float], None] = lambda number, value: None,
) -> dict[str, Any]:
    """The estimate as plain values. `known` holds folds that an earlier run measured: they are not learned again.

    An official test set is left alone: it is no part of what is learned from or judged by. Rows without a target judge
    nothing, and every fold may learn from them.
    """
    kind = dataset.task.kind
    metric = check_metric(metric or {"numbers": "rmse"}.get(kind, "error_rate"), kind)
    found: list[dict[str, Any]] = []
    labelled, rest = np.flatnonzero(dataset.labelled), np.flatnonzero(~dataset.labelled)
    told = dataset if len(rest) == 0 else dataset.take(labelled)
    for number, (others, own) in enumerate(dealt(told, folds, key=keys.named(key, "outer folds"))):
        if known is not None and number in known:
            value = float(known[number])
        else:
            predictor = learn(dataset.take(np.sort(np.concatenate([labelled[others], rest]))), number)
            part = told.take(own)
            value = measure(part.task, predictor.predict(part.inputs), part.targets, part.weights)[metric]
        watch(number, value)
        found.append({"fold": number, "value": value, "rows": len(own)})
    estimate = nested_estimate([one["value"] for one in found], [one["rows"] for one in found])
    low, high = _BOUNDS.get(metric, (0.0, 1.0))
    ends = [max(low, estimate.low), min(high, estimate.high)]
    return {"metric": metric, "mean": estimate.mean, "interval": ends, "folds": found}
