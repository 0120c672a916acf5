"""Splits into training, validation and test sets; the test set is read at the end alone (row E2).

    train, valid, test = HoldOut(valid=0.2, test=0.2)(dataset, key=key)
    parts = [Fold(number, folds=5)(dataset, key=key) for number in range(5)]  # one key for all folds

| split          | how the rows are assigned                                                |
|----------------|--------------------------------------------------------------------------|
| `HoldOut`      | at random; stratified by class                                           |
| `GroupHoldOut` | whole groups at random                                                   |
| `TimeHoldOut`  | by time: train on the oldest, test on the newest                         |
| `Fold`         | one of k equal folds is the test set, the rest as in `HoldOut`           |
| `GivenParts`   | given by the caller                                                      |

An official test set is used as it is, and the fractions then apply to the other examples. With `test=0` the test set is
`None`. Within each set, rows keep the order of the data.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Array, Key

from ..runtime.errors import RequestError
from ..runtime.keys import generator, named
from ..specs.contracts import AbstractSplit
from ..specs.dataset import Classes, Dataset
from ..specs.knobs import check_whole, is_plain_number, switch
from ..specs.sequences import Sequences, stack_sequences

Parts = tuple[Dataset, Dataset, Dataset | None]


def _valid() -> Any:
    return switch(0.2, allowed="(0, 1)", row="E2", about="fraction of the examples in the validation set")


def _test() -> Any:
    return switch(0.2, allowed="[0, 1)", row="E2", about="fraction of the examples in the test set; 0 for none")


def _whole(default: int, *, allowed: str, about: str) -> Any:
    return switch(default, allowed=allowed, row="E2", about=about)


def _check_sum(split: Any) -> None:
    if is_plain_number(split.valid) and is_plain_number(split.test) and split.valid + split.test >= 1:
        raise RequestError(
            f"`{type(split).__name__}.valid` and `.test` must leave examples for training; "
            f"got {split.valid} + {split.test}. Default: 0.2 + 0.2."
        )


def _sizes(count: int, fractions: Sequence[float], available: int, unit: str) -> list[int]:
    """Sizes of the training, validation and test sets, as close to the fractions as possible, none empty."""
    asked = [fraction for fraction in fractions if fraction > 0]
    needed = len(asked) + 1
    if available < needed:
        raise RequestError(f"{available} {unit} cannot be split into {needed} sets: at least {needed} are needed.")
    sizes = [max(1, round(count * fraction)) for fraction in asked]
    while sum(sizes) >= count:
        sizes[int(np.argmax(sizes))] -= 1
    return [count - sum(sizes), *sizes]


def _round_shares(members: np.ndarray, totals: Sequence[int]) -> np.ndarray:
    """How many members of each class go to each set: the exact share rounded up or down, preserving all sums.

    Such a rounding exists because the shares themselves have the right sums (a flow with whole capacities has a whole
    solution); it is found by augmenting paths, which with two or three sets are short.
    """
    counts, remainders = np.divmod(np.outer(members, totals), members.sum())
    extra = np.zeros(counts.shape, bool)
    room = np.asarray(totals) - counts.sum(0)

    def place(row: int, tried: set[int]) -> bool:
        for part in np.argsort(-remainders[row], kind="stable"):
            if part in tried or extra[row, part] or remainders[row, part] == 0:
                continue
            tried.add(part)
            if room[part] > 0:
                room[part] -= 1
                extra[row, part] = True
                return True
            for other in np.flatnonzero(extra[:, part]):
                if place(int(other), tried):
                    extra[other, part], extra[row, part] = False, True
                    return True
        return False

    for row, units in enumerate(members - counts.sum(1)):
        for _ in range(units):
            placed = place(row, set())
            assert placed
    return counts + extra


def _share_classes(members: np.ndarray, totals: Sequence[int]) -> np.ndarray:
    """As `_round_shares`, but the only member of a class goes to the training set, if there is room."""
    single = members == 1
    if not 0 < single.sum() <= totals[0]:
        return _round_shares(members, totals)
    counts = np.zeros((len(members), len(totals)), int)
    counts[single, 0] = 1
    if not single.all():
        counts[~single] = _round_shares(members[~single], [totals[0] - int(single.sum()), *totals[1:]])
    return counts


def _classes_of(dataset: Dataset) -> np.ndarray | None:
    return np.asarray(dataset.targets) if isinstance(dataset.task, Classes) else None


def _draw(classes: np.ndarray | None, sizes: Sequence[int], random: np.random.Generator) -> list[np.ndarray]:
    """Disjoint sets of exactly these sizes, stratified if there are classes."""
    order = random.permutation(sum(sizes))
    if classes is None:
        return [np.sort(rows) for rows in np.split(order, np.cumsum(sizes)[:-1])]
    _, index, members = np.unique(classes, return_inverse=True, return_counts=True)
    counts = _share_classes(members, sizes)
    order = order[np.argsort(index[order], kind="stable")]  # class by class, at random within each
    part = np.repeat(np.tile(np.arange(len(sizes)), len(members)), counts.ravel())
    return [np.sort(order[part == number]) for number in range(len(sizes))]


def _cut(lengths: np.ndarray, sizes: Sequence[int]) -> list[int]:
    """Where to cut a sequence of runs that stay whole: nearest to the requested sizes, no set empty."""
    ends = np.cumsum(lengths)
    cuts = [0]
    for number, target in enumerate(np.cumsum(sizes)[:-1], start=1):
        nearest = int(np.abs(ends - target).argmin()) + 1
        cuts.append(min(max(nearest, cuts[-1] + 1), len(lengths) - len(sizes) + number))
    return cuts[1:]


def _draw_runs(run_of_row: np.ndarray, orders: Iterable[np.ndarray], sizes: Sequence[int]) -> list[np.ndarray]:
    """Sets of whole runs, in the order that comes nearest to the requested sizes."""
    lengths = np.bincount(run_of_row)
    best, nearest = [np.arange(0)], np.inf
    for order in orders:
        runs = np.split(order, _cut(lengths[order], sizes))
        distance = sum(abs(int(lengths[part].sum()) - size) for part, size in zip(runs, sizes, strict=True))
        if distance < nearest:
            best, nearest = runs, distance
    return [np.flatnonzero(np.isin(run_of_row, runs)) for runs in best]


def _group_of_row(groups: np.ndarray) -> np.ndarray:
    names = groups.astype(str) if groups.dtype == object else groups
    return np.unique(names, return_inverse=True)[1]


def _draw_groups(groups: np.ndarray, fractions: Sequence[float], random: np.random.Generator) -> list[np.ndarray]:
    """Whole groups at random. Of 16 orders the nearest is kept: sorting by size would always test on small groups."""
    group = _group_of_row(groups)
    count = int(group.max()) + 1
    sizes = _sizes(len(group), fractions, count, "groups")
    return _draw_runs(group, (random.permutation(count) for _ in range(16)), sizes)


def _parts(dataset: Dataset, rows: list[np.ndarray], test: Dataset | None = None) -> Parts:
    """The sets at these rows, with a note on classes missing from training."""
    train = dataset.take(rows[0])
    if isinstance(dataset.task, Classes):
        absent = [str(dataset.task.labels[k]) for k in np.setdiff1d(np.unique(dataset.targets), train.targets)]
        if absent:
            names = ", ".join(absent[:5]) + (f" and {len(absent) - 5} more" if len(absent) > 5 else "")
            note = f"no training example of {dataset.task.name} {names}, so it cannot be learned"
            train = replace(train, notes=(*train.notes, note))
    if test is None and len(rows) > 2:
        test = dataset.take(rows[2])
    return train, dataset.take(rows[1]), test


class HoldOut(AbstractSplit):
    """Random validation and test sets, stratified by class to within one example.

    With `multiple`, the size of the training set is a multiple of it, and the remainder goes to the validation set:
    data sets of similar size, such as the folds of a cross-validation, then share one compiled program.
    """

    valid: float = _valid()
    test: float = _test()
    multiple: int = switch(
        1, allowed="[1, inf)", row="E15", kind="optimiser", about="the size of the training set is a multiple of this"
    )

    def __check_init__(self) -> None:
        _check_sum(self)

    def bucket(self) -> int:
        return self.multiple

    def __call__(self, dataset: Dataset, *, key: Key[Array, ""]) -> Parts:
        test = 0.0 if dataset.test is not None else self.test
        sizes = _sizes(len(dataset), [self.valid, test], len(dataset), "examples")
        over = sizes[0] % self.multiple if self.valid > 0 and sizes[0] > self.multiple else 0
        sizes[:2] = [sizes[0] - over, sizes[1] + over]
        if dataset.groups is not None:
            note = "groups may be in both training and test sets, so the estimate is optimistic; use `GroupHoldOut`"
            dataset = replace(dataset, notes=(*dataset.notes, note))
        return _parts(dataset, _draw(_classes_of(dataset), sizes, generator(key)), dataset.test)


class GroupHoldOut(AbstractSplit):
    """As `HoldOut`, but a group is never split between sets; fractions are met as nearly as groups allow."""

    valid: float = _valid()
    test: float = _test()

    def __check_init__(self) -> None:
        _check_sum(self)

    def __call__(self, dataset: Dataset, *, key: Key[Array, ""]) -> Parts:
        if dataset.groups is None:
            raise RequestError(
                "`GroupHoldOut` needs groups, but the data have none. Name their column, or use `HoldOut`."
            )
        test = 0.0 if dataset.test is not None else self.test
        return _parts(dataset, _draw_groups(dataset.groups, [self.valid, test], generator(key)), dataset.test)


class TimeHoldOut(AbstractSplit):
    """Trains on the past and tests on the newest examples; equal times stay together. Not random."""

    valid: float = _valid()
    test: float = _test()

    def __check_init__(self) -> None:
        _check_sum(self)

    def __call__(self, dataset: Dataset, *, key: Key[Array, ""]) -> Parts:
        if dataset.times is None:
            raise RequestError(
                "`TimeHoldOut` needs times, but the data have none. Name their column, or use `HoldOut`."
            )
        missing = int((dataset.times != dataset.times).sum())  # NaN and NaT differ from themselves
        if missing:
            raise RequestError(f"{missing} of {len(dataset)} examples have no time. Drop them, or use `HoldOut`.")
        moments, moment = np.unique(dataset.times, return_inverse=True)
        test = 0.0 if dataset.test is not None else self.test
        sizes = _sizes(len(dataset), [self.valid, test], len(moments), "distinct times")
        return _parts(dataset, _draw_runs(moment, [np.arange(len(moments))], sizes), dataset.test)


class GivenParts(AbstractSplit):
    """The first `train` rows are the training set, the next `valid` the validation set; any others, or the official
    test set, the test set. `join_parts` builds such a data set from separate ones."""

    train: int = _whole(1, allowed="[1, inf)", about="training rows")
    valid: int = _whole(1, allowed="[1, inf)", about="validation rows")

    def __check_init__(self) -> None:
        check_whole(self, "train", "valid")

    def among(self, kept: np.ndarray) -> "GivenParts":
        """The same sets, restricted to the marked rows."""
        train, valid = (int(part.sum()) for part in np.split(kept, [self.train, self.train + self.valid])[:2])
        if train == 0 or valid == 0:
            raise RequestError(f"no {'training' if train == 0 else 'validation'} row of `GivenParts` has a target.")
        return GivenParts(train, valid)

    def __call__(self, dataset: Dataset, *, key: Key[Array, ""]) -> Parts:
        used = self.train + self.valid
        if used > len(dataset):
            raise RequestError(f"`GivenParts` needs {self.train} + {self.valid} rows; the data have {len(dataset)}.")
        rows = np.split(np.arange(len(dataset)), [self.train, used])
        return _parts(dataset, rows if used < len(dataset) else rows[:2], dataset.test)


def stack_rows(pieces: Sequence[Any]) -> Any:
    """Rows under rows: dense, sparse or sequences."""
    if all(isinstance(piece, Sequences) for piece in pieces):
        return stack_sequences(pieces)
    if all(isinstance(piece, np.ndarray) for piece in pieces):
        return np.concatenate(pieces)
    from scipy.sparse import vstack

    return vstack(pieces, format="csr")


def join_parts(train: Dataset, valid: Dataset, test: Dataset | None = None) -> tuple[Dataset, GivenParts]:
    """Joins separate data sets, with the split that separates them again (for `validation_data=`)."""
    lengths_differ = isinstance(train.inputs, Sequences) and train.shape[1:] == valid.shape[1:]
    if train.shape != valid.shape and not lengths_differ:
        raise RequestError(
            f"validation examples must have the shape of training examples, {train.shape}; got {valid.shape}."
        )
    optional: dict[str, Any] = {}
    for name in ("weights", "groups", "times"):
        first, second = getattr(train, name), getattr(valid, name)
        if name == "weights" and (first is None) != (second is None):  # no weights means weight 1
            first = np.ones(len(train)) if first is None else first
            second = np.ones(len(valid)) if second is None else second
        optional[name] = None if first is None or second is None else np.concatenate([first, second])
    joined = replace(
        train,
        inputs=stack_rows([train.inputs, valid.inputs]),
        targets=np.concatenate([train.targets, valid.targets]),
        rows=None,
        test=test,
        **optional,
    )
    return joined, GivenParts(train=len(train), valid=len(valid))


def _deal_groups(groups: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """The fold of each row: groups from the largest, each to the smallest fold so far."""
    group = _group_of_row(groups)
    lengths = np.bincount(group)
    if len(lengths) < count:
        raise RequestError(f"{count} folds need at least {count} groups; the data have {len(lengths)}.")
    order = random.permutation(len(lengths))
    heap = [(0, number) for number in range(count)]
    fold = np.zeros(len(lengths), int)
    for one in order[np.argsort(-lengths[order], kind="stable")]:
        size, number = heap[0]
        fold[one] = number
        heapq.heapreplace(heap, (size + int(lengths[one]), number))
    return fold[group]


def deal_folds(dataset: Dataset, count: int, *, key: Key[Array, ""]) -> list[tuple[np.ndarray, np.ndarray]]:
    """The (other rows, own rows) of each fold: every example is in exactly one fold.

    Folds differ by at most one example, and so does each class in them; with groups, no group is in two folds.
    """
    if not 2 <= count <= len(dataset):
        raise RequestError(f"{len(dataset)} examples cannot be split into {count} folds: use 2 to {len(dataset)}.")
    random = generator(key)
    if dataset.groups is not None:
        fold = _deal_groups(dataset.groups, count, random)
    else:
        classes = _classes_of(dataset)
        order = random.permutation(len(dataset))
        if classes is not None:
            order = order[np.argsort(classes[order], kind="stable")]
        fold = np.empty(len(dataset), int)
        fold[order] = np.arange(len(dataset)) % count  # dealt like cards, so that classes spread evenly
    return [(np.flatnonzero(fold != number), np.flatnonzero(fold == number)) for number in range(count)]


class Fold(AbstractSplit):
    """Fold `number` of k-fold cross-validation is the test set; the rest is split into training and validation sets.

    Give every fold the same key. Training and validation sets have the same size in all folds (one example is left
    out where the rest is larger by one), so that all folds share one compiled program; groups, kept whole, may
    differ. An official test set is not used.
    """

    number: int = _whole(0, allowed="[0, inf)", about="the fold that is the test set, from 0")
    folds: int = _whole(5, allowed="[2, inf)", about="number of folds")
    valid: float = _valid()

    def __check_init__(self) -> None:
        check_whole(self, "number", "folds")
        if is_plain_number(self.number) and self.number >= self.folds:
            raise RequestError(f"`Fold.number` must lie in [0, {self.folds}); got {self.number}.")

    def __call__(self, dataset: Dataset, *, key: Key[Array, ""]) -> Parts:
        all_folds = deal_folds(dataset, self.folds, key=named(key, "folds"))
        rest, test = all_folds[self.number]
        random = generator(named(key, f"fold {self.number}"))
        if dataset.groups is not None:
            drawn = _draw_groups(dataset.groups[rest], [self.valid], random)
        else:
            smallest = min(len(others) for others, _ in all_folds)
            sizes = _sizes(smallest, [self.valid], smallest, "examples outside a fold")
            classes = _classes_of(dataset)
            drawn = _draw(classes if classes is None else classes[rest], [*sizes, len(rest) - smallest], random)
        return _parts(dataset, [rest[drawn[0]], rest[drawn[1]], test])
