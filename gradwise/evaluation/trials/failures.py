"""Which trials diverged or failed, in which ranges, and what to try if all of them did.

group_failures(trials).sentence    "of 40 trials 14 diverged: all 12 trials with `rate` above 0.3 diverged."
why_all_failed(space, trials)      None if a trial produced a model; otherwise a sentence and the range to try
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...records.trial import Trial
from ...specs.paths import knobs
from ...specs.search_space import Space
from .cost import rank_correlation

# A region is named where at least this share of its trials went wrong, and at least so many of them, ...
LEAST_SHARE, LEAST_COUNT = 0.8, 3
# ... and it would hold as many by chance this seldom. Small, since every threshold of every knob is looked at.
CHANCE = 1e-3
# Below this rate no sound loss diverges: the cause lies elsewhere.
TINY_RATE = 1e-6


@dataclass(frozen=True)
class FailureGroup:
    """A region of one knob where (nearly) all trials went wrong: beyond `low`, below `high`, or of one category."""

    path: str
    outcome: str  # "diverged" or "failed"
    low: float  # -inf and inf for an open end; NaN for a category
    high: float
    category: str
    bad: int
    count: int
    sentence: str


@dataclass(frozen=True)
class Failures:
    """How many trials went wrong, where, and the reasons of those that failed, commonest first.

    `unfinished` trials ended before their first validation score.
    """

    trials: int
    diverged: int
    failed: int
    unfinished: int
    groups: tuple[FailureGroup, ...]
    reasons: tuple[tuple[str, int], ...]
    sentence: str


@dataclass(frozen=True)
class AllFailed:
    """The verdict when no trial left a model: a sentence, and the range to try (no path where none is known)."""

    sentence: str
    path: str = ""
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class _Region:
    """A candidate, and how surprising it would be by chance alone."""

    surprise: float
    group: FailureGroup

    def covers(self, value: Any) -> bool:
        if self.group.category:
            return str(value) == self.group.category
        # One end is open, and the other is excluded.
        return bool(self.group.low < value < self.group.high)


def _between(outside: float, inside: float) -> float:
    """The shortest number that parts two values; it may be the outer one, never the inner one."""
    middle = math.sqrt(outside * inside) if min(outside, inside) > 0 else (outside + inside) / 2
    for digits in range(1, 17):
        short = float(f"{middle:.{digits}g}")
        if min(outside, inside) <= short <= max(outside, inside) and short != inside:
            return short
    return middle


def _group(path: str, outcome: str, where: str, ends: tuple[float, float], bad: int, count: int) -> FailureGroup:
    many = f"all {count}" if bad == count else f"{bad} of the {count}"
    category = where.removeprefix("= ") if where.startswith("= ") else ""
    return FailureGroup(path, outcome, *ends, category, bad, count, f"{many} trials with `{path}` {where} {outcome}")


def _surprise(bad: Any, count: Any, share: float) -> np.ndarray:
    """Minus the logarithm of a bound on the chance that `count` trials drawn blindly hold so many bad ones.

    Hoeffding's m·KL(d/m ‖ D/N), which holds for draws without replacement; 0 where they are no more than their share.
    """
    part = np.clip(np.asarray(bad) / np.asarray(count), share, 1.0)
    if share in {0.0, 1.0}:
        return np.zeros(np.shape(part))
    rest = np.where(part < 1.0, 1.0 - part, 1.0)  # (1 − p) log(1 − p) is 0 at p = 1
    divergence = part * np.log(part / share) + (1.0 - part) * np.log(rest / (1.0 - share))
    return np.asarray(count * np.maximum(divergence, 0.0))


def _tails(path: str, outcome: str, values: np.ndarray, bad: np.ndarray) -> list[_Region]:
    """The most surprising region above a threshold, and the one below a threshold."""
    found = []
    for sign in (-1.0, 1.0):
        order = np.argsort(sign * values, kind="stable")
        ordered, wrong = values[order], np.cumsum(bad[order])
        size = np.arange(1, len(ordered) + 1)
        cut = np.flatnonzero(ordered[1:] != ordered[:-1])  # a region ends between two different values
        cut = cut[(wrong[cut] >= LEAST_SHARE * size[cut]) & (wrong[cut] >= LEAST_COUNT)]
        if not len(cut):
            continue
        surprise = _surprise(wrong[cut], size[cut], float(bad.mean()))
        place = cut[int(surprise.argmax())]
        end = _between(float(ordered[place + 1]), float(ordered[place]))
        above = sign < 0
        ends = (end, math.inf) if above else (-math.inf, end)
        where = f"{'above' if above else 'below'} {end:g}"
        group = _group(path, outcome, where, ends, int(wrong[place]), int(size[place]))
        found.append(_Region(float(surprise.max()), group))
    return found


def _categories(path: str, outcome: str, values: Sequence[Any], bad: np.ndarray) -> list[_Region]:
    found = []
    words = [str(value) for value in values]
    for name in dict.fromkeys(words):
        inside = np.array([word == name for word in words])
        count, wrong = int(inside.sum()), int((inside & bad).sum())
        if wrong < max(LEAST_COUNT, LEAST_SHARE * count):
            continue
        group = _group(path, outcome, f"= {name}", (math.nan, math.nan), wrong, count)
        found.append(_Region(float(_surprise(wrong, count, float(bad.mean()))), group))
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _strongest(trials: Sequence[Trial]) -> _Region | None:
    """The region of any one knob that explains most, if it is beyond chance."""
    regions: list[_Region] = []
    for path in dict.fromkeys(path for trial in trials for path in trial.values):
        active = [trial for trial in trials if path in trial.values]
        values = [trial.values[path] for trial in active]
        for outcome in ("diverged", "failed"):
            bad = np.array([trial.outcome == outcome for trial in active])
            if bad.sum() < LEAST_COUNT:
                continue
            if all(_is_number(value) for value in values):
                regions += _tails(path, outcome, np.array(values, dtype=np.float64), bad)
            else:
                regions += _categories(path, outcome, values, bad)
    best = max(regions, key=lambda region: region.surprise, default=None)
    return best if best is not None and best.surprise > -math.log(CHANCE) else None


def _groups(trials: Sequence[Trial], most: int = 4) -> list[FailureGroup]:
    """Regions, strongest first; each is looked for among the trials that the ones before do not cover."""
    rest = list(trials)
    found: list[FailureGroup] = []
    while len(found) < most:
        region = _strongest(rest)
        if region is None:
            break
        group, others = region.group, "of the others " if found else ""
        found.append(dataclasses.replace(group, sentence=others + group.sentence))
        rest = [
            trial for trial in rest if group.path not in trial.values or not region.covers(trial.values[group.path])
        ]
    return found


def group_failures(trials: Sequence[Trial]) -> Failures:
    """How many diverged or failed, and in which ranges."""
    total = len(trials)
    diverged = sum(trial.outcome == "diverged" for trial in trials)
    failed = sum(trial.outcome == "failed" for trial in trials)
    unfinished = sum(not trial.ok for trial in trials) - diverged - failed
    groups = _groups(trials)
    said = [
        trial.reason.strip().partition("\n")[0] or "no reason given" for trial in trials if trial.outcome == "failed"
    ]
    reasons = tuple(Counter(said).most_common())
    counts = [(diverged, "diverged"), (failed, "failed"), (unfinished, "ended before a first score")]
    parts = [f"{count} {what}" for count, what in counts if count]
    if not parts:
        return Failures(total, 0, 0, 0, (), (), f"each of the {total} trials produced a model.")
    sentence = f"of {total} trials {' and '.join(parts)}"
    details = [group.sentence for group in groups]
    if reasons:
        details.append(f"the most common failure ({reasons[0][1]} times): {reasons[0][0]}")
    sentence += f": {'; '.join(details)}." if details else "."
    return Failures(total, diverged, failed, unfinished, tuple(groups), reasons, sentence)


def _rate_path(space: Space) -> str:
    """The learning rate that is searched, else the recipe's own."""
    searched = [path for path in space.paths if path.endswith("learning_rate")]
    own = [path for path, _, _ in knobs(space.recipe) if path.endswith("learning_rate")] if space.recipe else []
    return next(iter([*searched, *own]), "")


def _all_diverged(space: Space, trials: Sequence[Trial]) -> AllFailed:
    """All diverged: the rate was too large, unless it was tiny already."""
    path = _rate_path(space)
    fixed = {name: value for name, _, value in knobs(space.recipe)} if space.recipe else {}
    tried = np.array([float(t.values.get(path, fixed.get(path, math.nan))) for t in trials]) if path else np.zeros(0)
    ages = np.array([trial.age_examples for trial in trials], dtype=np.float64)
    count, latest = len(trials), int(ages.max())
    many = f"all {count} trials diverged" if count > 1 else "the only trial diverged"
    look = "check the data for huge or missing values, and check the loss"
    if not len(tried) or not np.isfinite(tried).any():
        return AllFailed(
            f"{many}, the last at age {latest:,} examples, and there is no learning rate to lower: {look}."
        )
    smallest = float(np.nanmin(tried))
    if smallest <= TINY_RATE:
        return AllFailed(f"{many}, even with `{path}` = {smallest:.2g}: the rate is not the cause; {look}.")
    relation = rank_correlation(tried, ages)
    longer = ", and smaller rates survived longer" if relation.value < -0.3 else ""
    low, high = float(f"{smallest / 1000:.2g}"), float(f"{smallest:.2g}")
    sentence = (
        f"{many}, even with the smallest `{path}` ({smallest:.2g}){longer}: the rates are too large. "
        f"Try {path}=log({low:g}, {high:g})."
    )
    return AllFailed(sentence, path, low, high)


def why_all_failed(space: Space, trials: Sequence[Trial]) -> AllFailed | None:
    """The verdict when no trial produced a model; None if one did, or if there are no trials."""
    if not trials or any(trial.ok for trial in trials):
        return None
    diverged = [trial for trial in trials if trial.outcome == "diverged"]
    found = group_failures(trials)
    if len(diverged) == len(trials):
        return _all_diverged(space, diverged)
    if found.failed >= max(found.diverged, found.unfinished):
        reason, count = found.reasons[0]
        return AllFailed(f"none of {len(trials)} trials produced a model; {count} failed with: {reason}")
    if found.unfinished >= found.diverged:
        sentence = f"none of {len(trials)} trials reached its first validation score: give the search more time."
        return AllFailed(sentence)
    verdict = _all_diverged(space, diverged)
    return AllFailed(
        f"{found.sentence} Of those that diverged: {verdict.sentence}", verdict.path, verdict.low, verdict.high
    )
