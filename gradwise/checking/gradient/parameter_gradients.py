"""Each parameter's gradient against differences, entry by entry: all of a small leaf, a seeded sample of a large one.

    leaves = measure_leaves(Differences.of(subject, key=key), 24, generator)
    leaves[0].worst, leaves[0].turned, leaves[0].ratio

Every chosen entry is tested once, at the chapter's epsilon. If it disagrees, a few of the leaf's entries are tested
again at every epsilon, and they decide for the leaf.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from ...specs.paths import named_leaves
from .finite_differences import RIGHT, UNKNOWN, WRONG, Differences, judge_differences
from .intermediate_gradients import common

_ALL = 64  # a leaf of up to so many entries is tested whole
_AGAIN = 6  # entries of a leaf that are tested again at every epsilon
_OF_LEAF = 1e-4  # anything below this share of the leaf's largest gradient is rounding
_SHARE = 0.3  # of the evaluations that a check may take


@dataclass(frozen=True)
class Leaf:
    """One parameter: the entries tested, their gradients by both methods, and the result for each."""

    name: str
    size: int
    entries: Int[np.ndarray, " m"]
    analytic: Float[np.ndarray, " m"]
    numeric: Float[np.ndarray, " m"]
    error: Float[np.ndarray, " m"]
    state: Int[np.ndarray, " m"]
    zero: bool = False  # the gradient is exactly 0 in every entry
    frozen: bool = False
    stop: str = ""  # the place of the `stop_gradient` that explains the difference
    step: str = ""  # the place of a step on every path to the loss

    @property
    def wrong(self) -> Bool[np.ndarray, " m"]:
        return self.state == WRONG

    @property
    def worst(self) -> float:
        """The largest relative error of a wrong entry, or of a right one."""
        chosen = self.error[self.wrong] if np.any(self.wrong) else self.error[self.state == RIGHT]
        return float(np.max(chosen)) if len(chosen) else 0.0

    @property
    def ratio(self) -> float:
        """Gradient / difference if it is the same for all wrong entries, or NaN."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return common(self.analytic[self.wrong] / self.numeric[self.wrong])

    @property
    def turned(self) -> bool:
        """Whether most wrong entries have the wrong sign and about the right size."""
        a, n = self.analytic[self.wrong], self.numeric[self.wrong]
        return bool(len(a)) and float(np.mean(np.abs(a + n) <= 0.05 * (np.abs(a) + np.abs(n)))) > 0.5


@dataclass(frozen=True)
class _Plan:
    """Which entries are tested; `owner` is the leaf of each."""

    names: list[str]
    sizes: np.ndarray
    entries: np.ndarray
    owner: np.ndarray

    @property
    def offsets(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]])

    def of(self, leaf: int, chosen: np.ndarray) -> np.ndarray:
        return np.flatnonzero(chosen & (self.owner == leaf))


def _plan(differences: Differences, elements: int, generator: np.random.Generator) -> _Plan:
    """Of a large leaf half the entries are those with the largest gradient: most of an embedding has none."""
    named = [(name, int(np.size(leaf))) for name, leaf in named_leaves(differences.subject.parameters)]
    wanted = [size if size <= _ALL else min(size, elements) for _, size in named]
    share = min(1.0, _SHARE * differences.evaluations / max(1, sum(wanted)))
    entries, first = [], 0
    for (_, size), many in zip(named, wanted, strict=True):
        count = min(size, max(2, int(many * share)))
        mine = np.arange(size)
        if count < size:
            top = size - count // 2
            gradient = np.nan_to_num(np.abs(differences.analytic[first : first + size]))
            drawn = generator.choice(size, count - count // 2, replace=False)
            mine = np.union1d(np.argpartition(gradient, top)[top:], drawn)
        entries.append(first + mine)
        first += size
    owner = np.repeat(np.arange(len(named)), [len(rows) for rows in entries])
    return _Plan([name for name, _ in named], np.asarray([s for _, s in named]), np.concatenate(entries), owner)


def _asked_again(
    plan: _Plan, suspects: np.ndarray, error: np.ndarray, most: int, generator: np.random.Generator
) -> np.ndarray:
    """For each suspect leaf: its worst entry and some random ones, fewer if there is not enough time."""
    suspicious = np.unique(plan.owner[suspects])
    each = int(np.clip(most // max(1, len(suspicious)), 1, _AGAIN))
    rows = []
    for leaf in suspicious:
        mine = plan.of(leaf, suspects)
        worst = mine[np.argsort(-np.nan_to_num(error[mine], nan=np.inf))][: (each + 1) // 2]
        rows += [worst, generator.permutation(np.setdiff1d(mine, worst))[: each - len(worst)]]
    return np.concatenate(rows)[:most].astype(int) if rows else np.zeros(0, int)


def measure_leaves(differences: Differences, elements: int, generator: np.random.Generator) -> list[Leaf]:
    """The verdict on every leaf."""
    plan = _plan(differences, elements, generator)
    analytic = differences.analytic[plan.entries].astype(np.float64)
    plus, minus, steps = differences.both(plan.entries, np.asarray([differences.epsilon]))
    numeric = ((plus - minus) / (2 * steps))[:, 0]
    sizes = np.nan_to_num(np.abs(analytic) + np.abs(numeric), posinf=0.0)
    largest = np.zeros(len(plan.names))
    np.maximum.at(largest, plan.owner, sizes)
    floor = _OF_LEAF * largest[plan.owner]
    rough = 80 * differences.unit * abs(differences.start) / steps[:, 0]
    error = np.abs(analytic - numeric) / np.maximum(np.maximum(sizes, floor), rough + 1e-300)
    suspects = ~(error <= differences.tolerance / 10)
    most = max(16, differences.evaluations // (4 * len(differences.ladder)))
    again = _asked_again(plan, suspects, error, most, generator)
    state = np.where(error <= differences.tolerance, RIGHT, UNKNOWN)
    if len(again):
        ups, downs, steps = differences.both(plan.entries[again], differences.ladder)
        numeric[again], error[again], state[again] = judge_differences(
            *(analytic[again], differences.start, steps, ups, downs),
            *(differences.unit, floor[again], differences.tolerance),
        )
    asked = np.isin(np.arange(len(state)), again)
    leaves, frozen = [], differences.subject.frozen_names
    for leaf, (name, size, first) in enumerate(zip(plan.names, plan.sizes, plan.offsets, strict=True)):
        told = state[plan.of(leaf, asked)]
        if len(told) and np.mean(told == WRONG) > 0.5:  # entries not tested again follow those that were
            state[plan.of(leaf, ~asked & ~(error <= differences.tolerance))] = WRONG
        mine = plan.of(leaf, np.ones(len(state), bool))
        values = (plan.entries[mine] - first, analytic[mine], numeric[mine], error[mine], state[mine])
        zero = not np.any(differences.analytic[first : first + size])
        leaves.append(Leaf(name, int(size), *values, zero=zero, frozen=name in frozen))
    return leaves
