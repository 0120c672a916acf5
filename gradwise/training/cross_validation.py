"""k-fold estimates (row E2): the same recipe trained once per fold, each example tested exactly once.

    estimate = cross_validate(recipe, dataset, [Fold(i, 5) for i in range(5)], key=key)

The folds give the estimate; the network that is saved is trained by hold-out.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Array, Key

from ..evaluation.metrics import COUNTED, wilson
from ..records.evidence.fit_evidence import CrossValidationEstimate
from ..records.fit import Fit
from ..specs.contracts import AbstractSplit
from ..specs.dataset import Dataset
from ..specs.recipe import Recipe
from .train import train


def summarise_folds(
    metric: str, values: Sequence[float], sizes: Sequence[int], count_errors: bool
) -> CrossValidationEstimate:
    """Mean weighted by the folds' sizes. Errors are counted over all folds (Wilson); other metrics get a t interval."""
    from scipy.stats import t

    mean = float(np.average(values, weights=sizes))
    if count_errors:
        return CrossValidationEstimate(metric, tuple(values), mean, wilson(mean * sum(sizes), sum(sizes)))
    if len(values) < 2:
        return CrossValidationEstimate(metric, tuple(values), mean, (math.nan, math.nan))
    # Folds share training examples, so this interval is somewhat too narrow; no unbiased one exists.
    half = float(t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
    return CrossValidationEstimate(metric, tuple(values), mean, (mean - half, mean + half))


def cross_validate(
    recipe: Recipe,
    dataset: Dataset,
    splits: Sequence[AbstractSplit],
    *,
    key: Key[Array, ""],
    watch: Callable[[int, Fit], None] = lambda number, result: None,
    **options: Any,
) -> CrossValidationEstimate:
    """Fits the recipe once for each split and evaluates it on the split's test set; options go to `fit`."""
    results = []
    for number, split in enumerate(splits):
        chosen = dataclasses.replace(recipe, split=split)
        result = train(chosen, dataset, key=key, **options)  # one key, so that the folds are parts of one partition
        watch(number, result)
        results.append(result)
    metric = results[0].metric
    sizes = [result.data.rows.test for result in results]
    counts = metric in COUNTED and dataset.task.kind == "classes" and dataset.weights is None
    return summarise_folds(metric, [result.test for result in results], sizes, counts)
