"""The order of examples: are successive batches as diverse as random ones?

    order = measure_order(targets, batches, "classes", random)
    find_order(order)                                          GW208

Only less diversity than random batches of the same targets is a fault: stratified or class-balanced batches are more
diverse. Diversity is the probability that two examples of a batch differ in class, or the variance of its numbers.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...records.finding import Finding
from ..codes import found

_TRIES = 200
_WINDOW = 16  # the fewest examples that are compared: smaller batches are pooled


@dataclass(frozen=True)
class Order:
    """How diverse batches are (1: like random ones), how many standard deviations below, and the order of the rows.

    `chance` is the probability of so little diversity in random batches. `trend` is the rank correlation of target
    and position among the batches, `rows_trend` among the rows; `runs` the number of runs of one class relative to
    shuffled rows, or 1 minus the correlation of successive numbers.
    """

    windows: int
    diversity: float
    deviations: float
    chance: float
    trend: float
    rows_trend: float
    runs: float
    classes: bool


def _diversity(values: np.ndarray, sizes: Sequence[int], count: int) -> float:
    """The mean diversity within consecutive stretches of these sizes."""
    window = np.repeat(np.arange(len(sizes)), sizes)
    lengths = np.asarray(sizes, float)
    if count:
        table = np.bincount(window * count + values, minlength=len(sizes) * count).reshape(len(sizes), count)
        return float((1 - ((table / lengths[:, None]) ** 2).sum(1)).mean())
    sums = np.stack([np.bincount(window, column, len(sizes)) for column in values.T], 1) / lengths[:, None]
    squares = np.bincount(window, (values**2).sum(1), len(sizes)) / lengths
    return float((squares - (sums**2).sum(1)).mean())


def _windows(batches: Sequence[np.ndarray]) -> list[int]:
    """Sizes of stretches of whole batches with enough examples each."""
    sizes, held = [], 0
    for batch in batches:
        held += len(batch)
        if held >= _WINDOW:
            sizes.append(held)
            held = 0
    return sizes


def _trend(values: np.ndarray) -> float:
    """The rank correlation of values with their position; of several columns, the first."""
    from scipy.stats import rankdata

    column = values if values.ndim == 1 else values[:, 0]
    ranks = rankdata(column)
    if len(column) < 3 or ranks.std() == 0:
        return 0.0
    return float(np.corrcoef(ranks, np.arange(len(column)))[0, 1])


def _runs(values: np.ndarray, classes: bool) -> float:
    """Changes between successive rows, against what shuffled rows would have."""
    if classes:
        shares = np.bincount(values) / len(values)
        return float((values[1:] != values[:-1]).mean() / max(1 - (shares**2).sum(), 1e-12))
    column = values[:, 0]
    return float(((column[1:] - column[:-1]) ** 2).mean() / max(2 * column.var(), 1e-300))


def _clean(targets: Any, classes: bool) -> np.ndarray:
    values = np.asarray(targets)
    if classes:
        values = values.argmax(1) if values.ndim == 2 and values.shape[1] > 1 else values.reshape(-1)
        return np.asarray(values, np.int64)
    return np.nan_to_num(np.asarray(values, np.float64).reshape(len(values), -1), posinf=0.0, neginf=0.0)


def _are_among(seen: np.ndarray, pool: np.ndarray) -> bool:
    """Whether nearly all of these targets occur in the pool, up to the rounding to 32 bits."""
    one, two = (np.asarray(each.reshape(len(each), -1)[:, 0], np.float32) for each in (seen, pool))
    return bool(np.isin(one, two).mean() > 0.9)


def _compared(
    seen: np.ndarray, sizes: list[int], pool: np.ndarray, classes: bool, random: np.random.Generator
) -> tuple[float, float, float]:
    """Diversity against random stretches drawn from the pool: the ratio, the deviations below, the chance of it."""
    if classes:
        values = np.unique(np.concatenate([pool, seen]))
        seen, pool = np.searchsorted(values, seen), np.searchsorted(values, pool)
    count = len(values) if classes else 0
    total = sum(sizes)
    again = total > len(pool)  # several epochs of batches
    draws = [_diversity(pool[random.choice(len(pool), total, replace=again)], sizes, count) for _ in range(_TRIES)]
    mean, deviation = float(np.mean(draws)), float(np.std(draws))
    told = _diversity(seen[:total], sizes, count)
    if mean <= 1e-12 or deviation <= 0 or told >= min(draws):
        return (told / mean if mean > 1e-12 else 1.0), 0.0, 1.0
    below = (mean - told) / deviation
    return told / mean, below, 0.5 * math.erfc(below / math.sqrt(2))


def measure_order(
    targets: np.ndarray | None, batches: Iterable[Any], task: str, random: np.random.Generator
) -> Order | None:
    """Compares successive batches (their targets) with random ones, and measures the order of the training rows."""
    classes = task == "classes"
    if task == "inputs":
        return None
    given = [_clean(batch, classes) for batch in batches if batch is not None and np.ndim(batch) > 0]
    pool = None if targets is None else _clean(targets, classes)
    told = (1.0, 0.0, 1.0, 0.0)
    sizes = _windows(given)
    if len(sizes) >= 4:
        seen = np.concatenate(given)
        # Batches may be in other units than the rows, or in other classes: then they are compared with one another.
        drawn = pool if pool is not None and _are_among(seen, pool) else seen
        told = (*_compared(seen, sizes, drawn, classes, random), _trend(seen[: sum(sizes)]))
    if pool is None or len(pool) < 30 or (classes and len(np.unique(pool)) < 2):
        rows = (0.0, 1.0)
    else:
        pool = np.searchsorted(np.unique(pool), pool) if classes else pool
        rows = (_trend(pool), _runs(pool, classes))
    return Order(len(sizes), *told, *rows, classes)


def find_order(order: Order | None) -> tuple[Finding, ...]:
    """GW208: an error for batches of one kind after another, a note for rows that are merely sorted."""
    if order is None:
        return ()
    kind = "different classes" if order.classes else "different targets"
    if order.windows and order.chance < 1e-6 and order.diversity < 0.9:
        # Numbers in a stream drift without being sorted; this may be intended.
        certain = order.diversity < 0.5 and (order.classes or abs(order.trend) > 0.95)
        what = f"successive batches have {order.diversity:.0%} of the {kind} of random ones "
        what += f"({order.deviations:.0f} standard deviations less): each update pulls towards one kind of example."
        step = "shuffle before every epoch: order = rng.permutation(len(x)); x, y = x[order], y[order]"
        level = "error" if certain else "warning"
        numbers = {"diversity": order.diversity, "deviations": order.deviations, "chance": order.chance}
        return (found("GW208", what, where="batches", next=step, level=level, **numbers),)
    if order.runs < 0.3 or abs(order.rows_trend) > 0.95:
        how = "are sorted by target" if abs(order.rows_trend) > 0.9 else "resemble the rows before them"
        what = f"the training rows {how} (successive targets differ {order.runs:.0%} as often as shuffled ones)."
        what = what if order.classes else what.replace("as often as", "as much as")
        step = "shuffle before batching (gradwise does); if rows are a time series, split by time."
        return (found("GW208", what, where="training rows", next=step, level="note", runs=order.runs),)
    return ()
