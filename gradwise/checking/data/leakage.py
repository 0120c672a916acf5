"""Leakage: rows on both sides of the split, and columns that contain the target.

    overlap = measure_overlap(train, test, random)         identical and nearly identical rows in both sets
    leaks = measure_column_leaks(train, "classes", random)      a column that is the target in disguise
    find_overlap(overlap); find_column_leaks(leaks, names)      GW201, GW202

Tables with few distinct values repeat rows naturally. The share of training rows with a duplicate in training is the
share expected of new test rows: only more than that is leakage.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...data.column_statistics import range_of
from ...records.finding import Finding
from ...records.score_scale import percent
from ...runtime.memory import row_blocks
from ..codes import found
from .predictability import Part, as_columns, nearest_rows, ridge, standardised, widest

_QUERIES, _BASE = 500, 8000
_SAMPLE, _COLUMNS = 2000, 2048
_FACTOR = np.int64(0x2545F4914F6CDD1D)  # odd: a mark of inputs and one of targets make a mark of both


def marks(inputs: Any, whole: bool) -> np.ndarray:
    """A hash of each row, equal for equal rows; floats are rounded to 32 bits."""
    if hasattr(inputs, "tocsr"):
        rows = inputs.copy()
        rows.eliminate_zeros()
        rows.sort_indices()
        data, ends = rows.data.astype(np.float32), rows.indptr
        return np.array([hash((rows.indices[a:b].tobytes(), data[a:b].tobytes())) for a, b in itertools.pairwise(ends)])
    told = np.empty(len(inputs), np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        for start, rows in row_blocks(inputs, 4096 * max(1, inputs[:1].size)):
            block: np.ndarray = np.array(rows, np.int64 if whole else np.float32, order="C")
            if not whole:
                block += 0.0  # -0 becomes 0
                block[np.isnan(block)] = np.nan  # one bit pattern for all NaNs
            told[start : start + len(block)] = [hash(row.tobytes()) for row in block]
    return told


@dataclass(frozen=True)
class Overlap:
    """Rows of a set that are also in training. `copied` have the same target too, where targets are known.

    `expected` is the share of training rows with a duplicate in training; `near` and `near_expected` are shares of rows
    with a near duplicate, `blocks` of rows far closer to one training row than to the fiftieth nearest.
    """

    part: str
    rows: int
    exact: int
    copied: int
    expected: float
    continuous: bool
    first: tuple[tuple[int, int], ...] = ()  # (row of the set, row of training)
    near_rows: int = 0
    near: float = 0.0
    near_expected: float = 0.0
    blocks: float = 0.0


def _is_continuous(part: Part, random: np.random.Generator) -> bool:
    """Whether some column hardly ever repeats a value: then equal rows are not a coincidence."""
    if part.inputs.dtype.kind != "f" or hasattr(part.inputs, "tocsr") or len(part) < 20:
        return False
    some = part.table(random.permutation(len(part))[:1000], widest(part, 64))
    broken = (some != np.round(some)) & ~np.isnan(some)
    distinct = [len(np.unique(column[kept])) for column, kept in zip(some.T, broken.T, strict=True)]
    return max(distinct, default=0) > 0.5 * len(some)


def _distances(queries: np.ndarray, base: np.ndarray, *, same: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The exact distance to the nearest row, and to the fiftieth."""
    near = nearest_rows(queries, base, 50, same=same)
    return tuple(np.sqrt(((queries - base[near[:, place]]) ** 2).sum(1)) for place in (0, -1))  # type: ignore[return-value]


def _closeness(train: Part, part: Part, random: np.random.Generator) -> tuple[int, float, float, float]:
    """How many rows were tested, shares with a near duplicate (in training, and within training), share in clusters."""
    columns = widest(train)
    base = train.table(np.sort(random.permutation(len(train))[:_BASE]), columns)
    rows = random.permutation(len(part))[:_QUERIES]
    queries = standardised(part.table(rows, columns), base, np.inf)
    base = standardised(base, base, np.inf)
    if len(base) < 100 or len(rows) < 20:
        return 0, 0.0, 0.0, 0.0
    first, last = _distances(queries, base)
    own, _ = _distances(base[:_QUERIES], base, same=True) if len(base) > _QUERIES else _distances(base, base, same=True)
    typical = float(np.median(own))
    if typical <= 1e-9:
        return 0, 0.0, 0.0, 0.0
    tiny = 1e-3 * typical
    near = float(((first < tiny) & (first > 0)).mean())
    expected = float(((own < tiny) & (own > 0)).mean())
    inner = (first > 0) & (first < 0.05 * last)
    return len(rows), near, expected, float(inner.mean()) if len(columns) > 1 else 0.0


def _pairs(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """The rows of the second marks that are among the first, each with the last row there that has the same mark."""
    order = np.argsort(ours, kind="stable")
    last = order[np.searchsorted(ours, theirs, side="right", sorter=order) - 1]  # -1, before the first, is another mark
    rows = np.flatnonzero(ours[last] == theirs)
    return np.stack([rows, last[rows]], axis=1)


def measure_overlap(train: Part, part: Part, random: np.random.Generator) -> Overlap:
    """Identical and nearly identical rows of training and another set."""
    whole = train.inputs.dtype.kind in "biu" and part.inputs.dtype.kind in "biu"
    ours, theirs = marks(train.inputs, whole), marks(part.inputs, whole)
    counts = np.unique(ours, return_counts=True)[1]
    pairs = copied = _pairs(ours, theirs)
    if train.targets is not None and part.targets is not None:
        beside = [marks(each.targets.reshape(len(each), -1), False) for each in (train, part)]  # type: ignore[union-attr]
        both = [inputs * _FACTOR + targets for inputs, targets in zip((ours, theirs), beside, strict=True)]
        copied = pairs[np.isin(both[1][pairs[:, 0]], both[0])]
    expected = float(counts[counts > 1].sum() / len(ours))
    closeness = _closeness(train, part, random)
    first = tuple((int(row), int(place)) for row, place in (copied if len(copied) else pairs)[:5])
    continuous = _is_continuous(train, random)
    return Overlap(part.name, len(part), len(pairs), len(copied), expected, continuous, first, *closeness)


def _tail(count: int, rows: int, share: float) -> float:
    """The probability of so many duplicates or more, if each row has one with this probability."""
    from scipy.stats import binom

    return float(binom.sf(count - 1, rows, min(max(share, 0.0), 1.0)))


def _level(overlap: Overlap, train_rows: int) -> str:
    """Error: far more rows copied than chance repeats. Warning: some. Note: as many as the table repeats anyway."""
    share = overlap.copied / overlap.rows
    if overlap.copied == 0:  # a fixed design: the same inputs, measured anew
        return "note"
    chance = max(overlap.expected, 1.0 / max(train_rows, 1))
    clear = _tail(overlap.copied, overlap.rows, chance) < 1e-6
    if clear and overlap.expected < 0.5 and share - overlap.expected > max(0.01, overlap.expected):
        return "error"
    if overlap.continuous and share >= 0.5:  # nothing measured repeats itself so often: copied before the split
        return "error"
    return "warning" if clear or (overlap.continuous and overlap.exact > 0.005 * overlap.rows) else "note"


def find_overlap(overlap: Overlap, train_rows: int) -> tuple[Finding, ...]:
    """GW201: exact copies, otherwise near ones; GW203 if the split divides clusters of rows."""
    share = overlap.exact / overlap.rows
    mend = f"remove them from the {overlap.part} set, or split by groups: gradwise fit DATA --group COLUMN"
    if overlap.exact:
        pairs = ", ".join(f"{row} = training row {twin}" for row, twin in overlap.first[:3])
        also = "" if overlap.copied == overlap.exact else f", {overlap.copied:,} of them with the same target"
        what = f"{overlap.exact:,} of {overlap.rows:,} {overlap.part} rows ({percent(share)}) have the same inputs as "
        what += f"a training row{also}; within training {percent(overlap.expected)} of rows are duplicated."
        numbers = {name: getattr(overlap, name) for name in ("exact", "copied", "rows", "expected")}
        where, level = f"{overlap.part} row {pairs}", _level(overlap, train_rows)
        return (found("GW201", what, where=where, next=mend, level=level, **numbers),)
    if overlap.near * overlap.near_rows >= 3 and overlap.near >= max(0.01, 3 * overlap.near_expected):
        what = f"{percent(overlap.near)} of {overlap.part} rows are near copies of a training row (within a thousandth "
        what += f"of the usual distance); within training {percent(overlap.near_expected)} are."
        shares = {"near": overlap.near, "expected": overlap.near_expected}
        return (found("GW201", what, where=overlap.part, next=mend, level="warning", **shares),)
    if overlap.blocks > 0.2:
        what = f"{overlap.blocks:.0%} of {overlap.part} rows are 20 times closer to one training row than to the "
        what += "fiftieth nearest: the split divides clusters of rows (one person, one recording)."
        step = "split by what the rows of a cluster share: gradwise fit DATA --group COLUMN"
        return (found("GW203", what, where=overlap.part, next=step, blocks=overlap.blocks),)
    return ()


@dataclass(frozen=True)
class ColumnLeak:
    """How well the best single column predicts the target: `score` is accuracy, or the share of variance.

    `exact`: the column is the target up to a one-to-one map; `others` is the score of all other columns together.
    """

    column: int
    score: float
    exact: bool
    others: float
    rows: int
    width: int
    table: bool  # columns of a table; in an image or a sequence a single position has no fixed meaning
    ordered: bool = False  # it separates three or more classes into intervals


def _class_scores(values: np.ndarray, classes: np.ndarray, count: int) -> np.ndarray:
    """Accuracy of each column alone: the majority class of each bin of one half, evaluated on the other."""
    bins = max(32, 4 * count)
    half = len(values) // 2
    scores = np.empty(values.shape[1])
    for number, column in enumerate(values.T):
        edges = np.unique(np.quantile(column[:half], np.linspace(0, 1, bins + 1)[1:-1]))
        cells = np.searchsorted(edges, column)
        table = np.zeros((len(edges) + 1, count), int)
        np.add.at(table, (cells[:half], classes[:half]), 1)
        scores[number] = (table.argmax(1)[cells[half:]] == classes[half:]).mean()
    return scores


def _number_scores(values: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Share of the variance that the neighbours in each column alone explain (leave-one-out)."""
    order = np.argsort(values, axis=0, kind="stable")
    sorted_ = target[order]
    padded = np.concatenate([sorted_[2:0:-1], sorted_, sorted_[-2:-4:-1]])
    count = len(sorted_)
    guess = sum(padded[place : place + count] for place in (0, 1, 3, 4)) / 4
    return np.asarray(1 - ((sorted_ - guess) ** 2).sum(0) / max(((target - target.mean()) ** 2).sum(), 1e-300))


def _is_same(column: np.ndarray, target: np.ndarray, task: str) -> bool:
    """Whether a column and the target determine each other: a bijection of classes, or a monotone map of numbers."""
    if task == "classes":
        pairs = len(np.unique(np.stack([column, target.astype(float)]), axis=1).T)
        return pairs == len(np.unique(column)) == len(np.unique(target))
    if len(np.unique(target)) < 0.5 * len(target) or len(target) < 100:
        return False
    one, two = (np.unique(each, return_inverse=True)[1] for each in (column, target))
    return bool((one == two).all() or (one == two.max() - two).all())


def _together(values: np.ndarray, target: np.ndarray, task: str) -> float:
    """The score of these columns together, by neighbours and by ridge regression, on the second half."""
    half = len(values) // 2
    features = standardised(values)
    columns = as_columns(target, task)
    near = nearest_rows(features[half:], features[:half], 5)
    guesses = (columns[:half][near].mean(1), ridge(features[:half], columns[:half], features[half:]))
    if task == "classes":
        return float(max((guess.argmax(1) == columns[half:].argmax(1)).mean() for guess in guesses))
    rest = ((columns[half:] - columns[half:].mean(0)) ** 2).sum()
    return float(max(1 - ((columns[half:] - guess) ** 2).sum() / max(rest, 1e-300) for guess in guesses))


def _filled(values: np.ndarray) -> np.ndarray:
    """Missing values as a separate value, slightly below all others of their column."""
    low, high = range_of(values)
    return np.where(np.isnan(values), low - 0.1 * np.where(high > low, high - low, 1.0), values)


def measure_column_leaks(part: Part, task: str, random: np.random.Generator) -> ColumnLeak | None:
    """The column that predicts the target best; None without a single target, or with fewer than 30 rows."""
    targets = part.targets
    if targets is None or targets.size > len(targets) or (task != "classes" and targets.dtype.kind != "f"):
        return None
    target = targets.reshape(-1)
    known = target >= 0 if task == "classes" else np.isfinite(target)
    rows = random.permutation(np.flatnonzero(known))[:_SAMPLE]
    if len(rows) < 30 or len(np.unique(target[rows])) < 2 or part.inputs.shape[1] < 2:
        return None
    columns = widest(part, _COLUMNS)
    values, target = part.table(rows, columns), target[rows]
    values = _filled(values)
    if task == "classes":
        target = np.unique(target, return_inverse=True)[1]
        scores = _class_scores(values, target, int(target.max()) + 1)
    else:
        scores = _number_scores(values, target)
    same = [number for number in np.argsort(-scores)[:5] if _is_same(values[:, number], target, task)]
    best = int(same[0] if same else scores.argmax())
    others = np.delete(np.arange(len(columns)), best)
    others = others[np.argsort(-values[:, others].var(0), kind="stable")[:256]]
    together = _together(values[:, others], target, task) if scores[best] > 0.98 or same else 0.0
    table = len(part.shape) < 2 and not (part.inputs.dtype.kind in "iu" and task == "classes" and _tokens(values))
    score = float(scores[best])
    sorted_classes = target[np.argsort(values[:, best], kind="stable")]
    pieces, kinds = 1 + int(np.sum(sorted_classes[1:] != sorted_classes[:-1])), len(np.unique(target))
    ordered = task == "classes" and pieces == kinds >= 3
    return ColumnLeak(int(columns[best]), score, bool(same), together, len(rows), len(columns), table, ordered)


def _tokens(values: np.ndarray) -> bool:
    """Whether all columns share one vocabulary, as sequences of symbols do."""
    tops = values.max(0)
    return values.shape[1] > 3 and bool(tops.min() > 2 and tops.min() > 0.5 * tops.max())


def find_column_leaks(giving: ColumnLeak | None, names: tuple[str, ...]) -> tuple[Finding, ...]:
    """GW202."""
    if giving is None:
        return ()
    if not (giving.exact or giving.ordered or (giving.score > 0.99 and giving.others < 0.97)):
        return ()
    name = names[giving.column] if giving.column < len(names) else f"column {giving.column}"
    told = f"`{name}` alone predicts the target with a score of {percent(giving.score)}"
    if giving.exact:
        told = f"`{name}` and the target determine each other in all {giving.rows:,} rows examined"
    elif giving.ordered:
        told = f"`{name}` separates the classes into intervals"
    rest = f"; the other {giving.width - 1} columns together reach {percent(giving.others)}" if giving.others else ""
    step = f"if `{name}` is not known before the target, drop it from the inputs."
    level = "error" if giving.exact and giving.table else "warning"
    numbers = {"column": giving.column, "score": giving.score, "others": giving.others}
    return (found("GW202", f"{told}{rest}.", where=name, next=step, level=level, **numbers),)
