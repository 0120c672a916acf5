"""How well the inputs predict the targets, by simple learners that share no code with the network.

    part = as_part("train", (inputs, targets), task="classes")
    signal = measure_signal(part, "classes", random)      nearest neighbours, ridge regression, and trees if these fail
    find_signal(signal)                                   GW206, GW210

A learner is fitted on one half of a sample of rows and evaluated on the other by the correlation of its predictions
with the targets. Permuted targets give the chance level, whatever the imbalance or the number of columns. This is
repeated with the targets shifted by up to three rows: a match there means that inputs and targets are misaligned.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...data.column_statistics import moments_of
from ...records.finding import Finding
from ...records.score_scale import percent
from ...runtime.errors import RequestError
from ...runtime.memory import take_rows
from ..codes import found

_SAMPLE = 2000
_WIDTH = 256  # the learners use the columns that vary most
_FEWEST = 100
_SERIAL = 0.3
_SHIFTS = (-3, -2, -1, 1, 2, 3)
_NEIGHBOURS = 10
_AT_CHANCE, _CLEAR = 4.0, 8.0  # standard deviations over permuted targets


@dataclass(frozen=True)
class Part:
    """A training, validation or test set: `inputs` (n, d), dense or CSR; `targets` classes (n,), (n, k), or None."""

    name: str
    inputs: Any
    targets: np.ndarray | None
    shape: tuple[int, ...]
    groups: np.ndarray | None = None

    def __len__(self) -> int:
        return int(self.inputs.shape[0])

    def table(self, rows: np.ndarray, columns: np.ndarray | slice = slice(None)) -> np.ndarray:
        """These rows in 64 bits, infinite values as NaN."""
        taken = take_rows(self.inputs, rows)[:, columns]
        values = np.asarray(taken.toarray() if hasattr(taken, "toarray") else taken, np.float64)
        return np.where(np.isfinite(values), values, np.nan)


def _as_targets(targets: Any, task: str, name: str) -> np.ndarray:
    """Classes as (n,), even if given as one column or as one-hot rows; anything else as (n, k)."""
    values = np.asarray(targets)
    if values.dtype.kind not in "biuf":
        raise RequestError(f"the targets of the {name} set must be numbers; got {values.dtype}.")
    values = values.astype(np.int64) if values.dtype.kind in "bu" else values
    if task == "classes" and values.ndim == 2 and values.shape[1] > 1 and np.isin(values, (0, 1)).all():
        values = values.argmax(1) if (values.sum(1) == 1).all() else values
    if task == "classes" and values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if task == "classes" and values.ndim == 1:
        whole = values.dtype.kind == "f" and bool((values == np.floor(values)).all())
        return values.astype(np.int64) if whole else values
    values = values.reshape(len(values), -1)
    return values.astype(np.float64) if task == "numbers" else values


def as_part(name: str, pair: Any, *, task: str, groups: Any = None) -> Part | None:
    """A pair (inputs, targets or None) as a table; None if there is no pair."""
    if pair is None:
        return None
    inputs, targets = pair
    inputs = inputs.tocsr() if hasattr(inputs, "tocsr") else np.asarray(inputs)
    inputs = inputs.astype(np.float32) if inputs.dtype.kind == "V" else inputs  # 16 bits that NumPy has no kind for
    if inputs.dtype.kind not in "biuf" or len(inputs.shape) == 0 or inputs.shape[0] == 0:
        raise RequestError(f"the inputs of the {name} set must be an array of numbers with one row per example.")
    count, shape = inputs.shape[0], tuple(inputs.shape[1:])
    values = None if targets is None or np.size(targets) == 0 else _as_targets(targets, task, name)
    for what, beside in (("targets", values), ("groups", groups)):
        if beside is not None and len(beside) != count:
            raise RequestError(f"the {name} set has {count} rows of inputs but {len(beside)} {what}: make them equal.")
    table = inputs if hasattr(inputs, "tocsr") else inputs.reshape(count, -1)
    return Part(name, table, values, shape, None if groups is None else np.asarray(groups))


def standardised(values: np.ndarray, like: np.ndarray | None = None, limit: float = 5.0) -> np.ndarray:
    """Columns of mean 0 and deviation 1 (of `like`, if given); missing values become the mean, outliers are clipped."""
    with np.errstate(all="ignore"):
        centre, spread = moments_of(values if like is None else like)
        scaled = (values - centre) / np.where(spread > 1e-12 * np.abs(centre), spread, np.inf)
    return np.clip(np.nan_to_num(scaled, nan=0.0, posinf=0.0, neginf=0.0), -limit, limit)


def widest(part: Part, count: int = _WIDTH) -> np.ndarray:
    """The `count` columns that vary most, or all if there are fewer."""
    if part.inputs.shape[1] <= count:
        return np.arange(part.inputs.shape[1])
    rows = np.linspace(0, len(part) - 1, min(len(part), 500)).astype(int)
    some = take_rows(part.inputs, np.unique(rows))
    if hasattr(some, "toarray"):
        power = np.asarray(some.multiply(some).mean(0)).ravel() - np.asarray(some.mean(0)).ravel() ** 2
    else:
        power = np.nan_to_num(np.asarray(some, np.float64)).var(0)
    return np.sort(np.argsort(-power, kind="stable")[:count])


def nearest_rows(queries: np.ndarray, base: np.ndarray, count: int, *, same: bool = False) -> np.ndarray:
    """The rows of `base` nearest to each query, nearest first; `same` leaves each row itself out."""
    small, large = queries.astype(np.float32), base.astype(np.float32)
    squares = (small**2).sum(1)[:, None] + (large**2).sum(1)[None] - 2 * small @ large.T
    if same:
        np.fill_diagonal(squares, np.inf)
    count = min(count, len(base) - same)
    chosen = np.argpartition(squares, count - 1, axis=1)[:, :count]
    order = np.argsort(np.take_along_axis(squares, chosen, 1), axis=1, kind="stable")
    return np.asarray(np.take_along_axis(chosen, order, 1))


def ridge(inputs: np.ndarray, targets: np.ndarray, judged: np.ndarray) -> np.ndarray:
    """Predictions of ridge regression, with a penalty of a twentieth of the number of rows."""
    mean = targets.mean(0)
    gram = inputs.T @ inputs + 0.05 * len(inputs) * np.eye(inputs.shape[1])
    return np.asarray(judged @ np.linalg.solve(gram, inputs.T @ (targets - mean)) + mean)


def _trees(inputs: np.ndarray, targets: np.ndarray, judged: np.ndarray) -> np.ndarray:
    from sklearn.ensemble import ExtraTreesRegressor

    forest = ExtraTreesRegressor(n_estimators=60, min_samples_leaf=5, random_state=0, n_jobs=1)
    wanted = targets[:, 0] if targets.shape[1] == 1 else targets
    return np.asarray(forest.fit(inputs, wanted).predict(judged)).reshape(len(judged), -1)


def as_columns(targets: np.ndarray, task: str) -> np.ndarray:
    """Targets as columns for regression: one for each class, or standardised numbers."""
    if task == "classes":
        return (targets[:, None] == np.unique(targets)[None, :64]).astype(np.float64)
    return standardised(targets.astype(np.float64))


def agreement(predicted: np.ndarray, targets: np.ndarray, random: np.random.Generator) -> tuple[float, float]:
    """The correlation of predictions with targets, and how many standard deviations that is above chance."""
    one, two = predicted - predicted.mean(0), targets - targets.mean(0)
    size = float(np.sqrt((one**2).sum() * (two**2).sum()))
    if size < 1e-9:
        return 0.0, 0.0
    chance = [float((one * two[random.permutation(len(two))]).sum()) / size for _ in range(60)]
    value = float((one * two).sum()) / size
    return value, (value - float(np.mean(chance))) / (float(np.std(chance)) + 1e-12)


@dataclass(frozen=True)
class Signal:
    """How predictable the targets are, by shift in rows (0: unshifted), and which labels the neighbours contradict.

    `strengths` are correlations of predictions with targets on held-out rows, `deviations` how far above
    chance; each of the best learner. `copied` are the shifts at which a single column contains the target.
    """

    rows: int
    strengths: dict[int, float]
    deviations: dict[int, float]
    copied: tuple[int, ...] = ()
    serial: float = 0.0  # the largest lag-1 autocorrelation of a column
    conflicting: float = 0.0  # share of rows whose exact inputs occur more often with another class
    denied: float = 0.0  # share of rows of which 8 of 10 neighbours agree on another class
    neighbours_right: float = 0.0
    denied_rows: tuple[int, ...] = ()


def _denied(features: np.ndarray, classes: np.ndarray, rows: np.ndarray) -> tuple[float, float, tuple[int, ...]]:
    """Labels that nearly all neighbours contradict: their share, how often neighbours are right, and where."""
    near = classes[nearest_rows(features, features, _NEIGHBOURS, same=True)]
    values = np.unique(classes)
    votes = np.stack([(near == value).sum(1) for value in values], 1)
    believed = values[votes.argmax(1)]
    denied = (believed != classes) & (votes.max(1) >= 0.8 * near.shape[1])
    worst = np.argsort(-votes.max(1) * denied, kind="stable")[: min(10, int(denied.sum()))]
    return float(denied.mean()), float((believed == classes).mean()), tuple(int(row) for row in rows[worst])


def _copies(values: np.ndarray, targets: np.ndarray, task: str) -> bool:
    """Whether one column is the target itself: a forecast of the next value looks like a shift, but is not."""
    if task == "classes":
        return bool((np.abs(values - targets[:, None]) < 1e-9).all(0).any())
    one, two = standardised(values, limit=np.inf), standardised(targets.astype(float), limit=np.inf)
    return bool((np.abs(one.T @ two) / len(one) > 1 - 1e-6).any())


def _serial(part: Part) -> float:
    """The largest lag-1 autocorrelation of a column: it is high in time series."""
    values = standardised(part.table(np.arange(min(len(part), _SAMPLE)), widest(part, 64)))
    return float(np.abs((values[1:] * values[:-1]).mean(0)).max())


def measure_signal(part: Part, task: str, random: np.random.Generator) -> Signal | None:
    """Predicts the targets with simple learners; None if there are too few rows, or too many targets."""
    targets = part.targets
    if targets is None or (targets.ndim == 2 and targets.shape[1] > 16):
        return None
    if part.inputs.dtype.kind in "iu":  # symbols: neither distances nor sums of their numbers mean anything
        return None
    known = targets >= 0 if task == "classes" else np.isfinite(targets).all(1)
    rows = random.permutation(np.flatnonzero(known))[:_SAMPLE]
    if len(rows) < 20 or len(np.unique(targets[rows], axis=0)) < 2:
        return None
    raw = part.table(rows, widest(part))
    features = standardised(raw)
    denied = _denied(features, targets[rows], rows) if task == "classes" else (0.0, 0.0, ())
    if len(rows) < _FEWEST:
        return Signal(len(rows), {}, {}, (), 0.0, 0.0, *denied)
    one, two = np.split(random.permutation(len(rows)), [len(rows) // 2])
    near = nearest_rows(features[two], features[one], 15)
    strengths, deviations, copied = {}, {}, []
    for shift in (0, *_SHIFTS):
        moved = np.clip(rows + shift, 0, len(part) - 1)  # the few rows at the ends keep a wrong target
        columns = as_columns(targets[moved], task)
        guesses = [columns[one][near].mean(1), ridge(features[one], columns[one], features[two])]
        told = [agreement(guess, columns[two], random) for guess in guesses]
        if shift == 0 and max(deviation for _, deviation in told) < _AT_CHANCE:
            told.append(agreement(_trees(features[one], columns[one], features[two]), columns[two], random))
        strengths[shift], deviations[shift] = (float(x) for x in max(told, key=lambda each: each[1]))
        inner = (rows + shift >= 0) & (rows + shift < len(part))
        if shift and strengths[shift] > 0.5 and _copies(raw[inner], targets[moved[inner]], task):
            copied.append(shift)
    return Signal(len(rows), strengths, deviations, tuple(copied), _serial(part), 0.0, *denied)


def _find_step(signal: Signal) -> Finding | None:
    """Inputs that predict nothing, or the targets of other rows."""
    here, sure = signal.strengths[0], signal.deviations[0]
    moves = [shift for shift in _SHIFTS if shift in signal.strengths and shift not in signal.copied]
    best = max(moves, key=lambda shift: signal.strengths[shift], default=0)
    there, surely = signal.strengths[best], signal.deviations[best]
    silent = sure < _AT_CHANCE
    # A forecast of the next row from this one looks like targets a row too early, and may be intended.
    series = best < 0 and signal.serial > _SERIAL
    if series and not silent:
        return None
    if best and surely > _CLEAR and ((silent and there > 0.25) or (there > 0.7 and here < 0.6 * there)):
        what = (
            f"row i's inputs predict the target of row i{best:+d} (correlation {there:.2f}), not its own ({here:.2f}): "
            f"inputs and targets are misaligned by {abs(best)} row{'s' if abs(best) > 1 else ''}."
        )
        step = f"find where rows are dropped or shifted; to confirm: targets = np.roll(targets, {-best})"
        level = "warning" if series else "error"
        numbers = {"shift": best, "strength": there, "strength_here": here, "rows": signal.rows}
        return found("GW210", what, where="targets", next=step, level=level, **numbers)
    if not silent:
        return None
    what = (
        f"nearest neighbours, ridge regression and trees predict the targets no better than chance (correlation "
        f"{here:.2f}, {sure:.1f} standard deviations, {signal.rows:,} rows): inputs and targets may not match."
    )
    step = "print ten rows with their targets; look for a shuffle or sort of only one of the two."
    return found("GW210", what, where="targets", next=step, strength=here, deviations=sure, rows=signal.rows)


def find_signal(signal: Signal | None) -> tuple[Finding, ...]:
    """GW206 and GW210."""
    if signal is None:
        return ()
    findings = []
    if signal.conflicting >= 0.01 or (signal.denied >= 0.03 and signal.neighbours_right >= 0.7):
        rows = ", ".join(str(row) for row in signal.denied_rows[:5])
        what = f"at least 8 of the 10 nearest examples contradict {percent(signal.denied)} of labels, and "
        what += f"{percent(signal.conflicting)} of rows have inputs that occur more often with another label."
        where = f"training rows {rows}" if rows else "training targets"
        step = "inspect these rows first; if labels cannot be corrected, use early stopping and a small network."
        numbers = {name: getattr(signal, name) for name in ("denied", "conflicting", "neighbours_right")}
        findings.append(found("GW206", what, where=where, next=step, **numbers, rows=list(signal.denied_rows)))
    other = _find_step(signal) if 0 in signal.strengths else None
    return tuple([*findings, other] if other else findings)
