"""The weights of an ensemble: greedy ensemble selection, bagged and shrunk (row D9).

    weights = select_weights(predictions, targets, kind="classes", seed=0)      one for each candidate, of sum 1
    mean = weighted_mean(predictions, weights)
    honest = held_out(predictions, targets, kind="classes", seed=0)             each row by weights that others chose

Predictions are those of held-out rows. One after another, and with replacement, the candidate that lowers the loss of
the mean most is added (Caruana et al. 2004). Two things reduce selection noise: the selection is repeated over random
halves of the candidates and averaged, and the fewer rows there are, the more the weights shrink towards equal weights
for the candidates that are not significantly worse than the best.

The loss is the log-loss of classes and labels, and the squared error of numbers: both are convex, so that a mean is
never worse than its members are on average.
"""

from collections.abc import Callable, Iterator

import numpy as np

_ROUNDS = 25  # candidates that enter, repetitions counted
_BAGS = 10
_EVEN_ROWS = 1000.0  # rows at which the selection and equal weights count alike
_DEVIATIONS = 2.0  # standard errors of the difference by which a candidate is worse than the best
_MOST_ALIKE = 16  # of these: more networks take longer to answer and change nothing
_LEAST_WEIGHT = 0.01
_LEAST_CHANCE = 1e-7
_LEAST_GAIN = 1e-6  # in the loss, for another candidate to enter: less is rounding
_PARTS = 5  # of the rows, where the selection is judged

Entered = Iterator[tuple[int, float]]  # the candidates that enter, one after another, and the loss of the mean so far


def weighted_mean(predictions: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The mean prediction (rows, k) of candidates (candidates, rows, k)."""
    return np.tensordot(weights, predictions, axes=1)


def _read_by_loss(predictions: np.ndarray, targets: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """What the loss reads of each prediction, and what it is compared with: (candidates, rows, n) and (rows, n).

    Of classes the chance of the right one is enough, of labels that of each right answer.
    """
    if kind == "classes":
        chances = predictions[:, np.arange(len(targets)), np.asarray(targets, int)]
        return chances[:, :, None], np.ones((len(targets), 1))
    if kind == "labels":
        right = np.where(np.asarray(targets) > 0.5, predictions, 1.0 - predictions)
        return right, np.ones(right.shape[1:])
    return predictions, np.asarray(targets, float).reshape(predictions.shape[1:])


def _row_losses(read: np.ndarray, wanted: np.ndarray, kind: str) -> np.ndarray:
    """The loss of each row, for arrays that end in (rows, n)."""
    if kind == "numbers":
        return ((read - wanted) ** 2 / np.maximum(wanted.var(axis=0), 1e-30)).mean(axis=-1)
    return -np.log(np.maximum(read, _LEAST_CHANCE)).mean(axis=-1)


def _squared_errors(read: np.ndarray, wanted: np.ndarray, counted: np.ndarray) -> Callable[[np.ndarray], Entered]:
    """The greedy selection of means with the least squared error, which products of errors are enough for."""
    errors = (read - wanted) / np.sqrt(np.maximum(wanted.var(axis=0), 1e-30) * wanted.shape[-1])
    weighted = errors * (counted / counted.sum())[:, None]
    products = np.tensordot(errors, weighted, axes=((1, 2), (1, 2)))

    def select(bag: np.ndarray) -> Entered:
        own = products[np.ix_(bag, bag)]
        total, beside = 0.0, np.zeros(len(bag))
        for turn in range(_ROUNDS):
            sums = total + 2.0 * beside + own.diagonal()
            choice = int(sums.argmin())
            yield choice, float(sums[choice]) / (turn + 1) ** 2
            total = float(sums[choice])
            beside += own[choice]

    return select


def _log_losses(read: np.ndarray, counted: np.ndarray) -> Callable[[np.ndarray], Entered]:
    """The same for chances (candidates, rows, n) of what is right and the log-loss, in 32 bits for speed."""
    flat = read.reshape(len(read), -1).astype(np.float32)
    rows = np.repeat(counted / counted.sum() / read.shape[2], read.shape[2]).astype(np.float32)

    def select(bag: np.ndarray) -> Entered:
        own, total = flat[bag], np.zeros(flat.shape[1], np.float32)
        sums = np.empty_like(own)
        for turn in range(_ROUNDS):
            np.add(own, total, out=sums)
            np.maximum(sums, np.float32(_LEAST_CHANCE * (turn + 1)), out=sums)
            losses = np.log(turn + 1.0) - np.log(sums, out=sums) @ rows
            choice = int(losses.argmin())
            yield choice, float(losses[choice])
            total += own[choice]

    return select


def _count(entered: Entered, candidates: int) -> np.ndarray:
    """How often each candidate enters until the mean is at its best."""
    taken, best, length = [], np.inf, 0
    for choice, loss in entered:
        taken.append(choice)
        if loss < best - _LEAST_GAIN:
            best, length = loss, len(taken)
    return np.bincount(taken[:length], minlength=candidates).astype(float)


def _alike(losses: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Which candidates cannot be told from the best by their losses (candidates, rows); the best of those, if many."""
    order = np.average(losses, axis=1, weights=counted).argsort(kind="stable")
    worse = losses - losses[order[0]]
    mean = np.average(worse, axis=1, weights=counted)
    error = worse.std(axis=1) / np.sqrt(losses.shape[1])
    alike = [place for place in order if mean[place] <= _DEVIATIONS * error[place] + 1e-12]
    return np.isin(np.arange(len(losses)), alike[:_MOST_ALIKE])


def select_weights(
    predictions: np.ndarray, targets: np.ndarray, *, kind: str, seed: int, counted: np.ndarray | None = None
) -> np.ndarray:
    """The weight of each candidate in the mean. `counted` says how much each row counts."""
    count, rows = predictions.shape[:2]
    if count == 1:
        return np.ones(1)
    counted = np.ones(rows) if counted is None else np.asarray(counted, float)
    read, wanted = _read_by_loss(predictions, targets, kind)
    draw = np.random.default_rng(seed)
    bags = [np.arange(count)] + [np.sort(draw.permutation(count)[: -(-count // 2)]) for _ in range(_BAGS)]
    chosen = np.zeros(count)
    select = _squared_errors(read, wanted, counted) if kind == "numbers" else _log_losses(read, counted)
    for bag in bags if count > 2 else bags[:1]:
        entered = _count(select(bag), len(bag))
        chosen[bag] += entered / entered.sum()
    chosen /= chosen.sum()
    alike = _alike(_row_losses(read, wanted, kind), counted).astype(float)
    even = _EVEN_ROWS / (_EVEN_ROWS + rows)
    weights = (1.0 - even) * chosen + even * alike / alike.sum()
    weights[weights < _LEAST_WEIGHT] = 0.0
    return weights / weights.sum()


def gain_of(better: np.ndarray, worse: np.ndarray, targets: np.ndarray, *, kind: str) -> tuple[float, float]:
    """By how much predictions (rows, k) have a lower mean loss than others, and the standard error of that."""
    read, wanted = _read_by_loss(np.stack([worse, better]), targets, kind)
    losses = _row_losses(read, wanted, kind)
    differences = losses[0] - losses[1]
    return float(differences.mean()), float(differences.std() / np.sqrt(len(differences)))


def held_out(
    predictions: np.ndarray, targets: np.ndarray, *, kind: str, seed: int, counted: np.ndarray | None = None
) -> np.ndarray:
    """The ensemble's prediction of each row (rows, k), with weights chosen on the other rows.

    So it has no selection bias, except that each network's epoch was chosen on the rows of its own fold.
    """
    count, rows = predictions.shape[:2]
    if count == 1 or rows < 2 * _PARTS:
        return weighted_mean(predictions, np.full(count, 1.0 / count))
    part = np.random.default_rng(seed + 1).permutation(rows) % _PARTS
    found = np.zeros(predictions.shape[1:])
    for number in range(_PARTS):
        own, others = part == number, part != number
        weights = select_weights(
            predictions[:, others],
            np.asarray(targets)[others],
            kind=kind,
            seed=seed,
            counted=None if counted is None else np.asarray(counted)[others],
        )
        found[own] = weighted_mean(predictions[:, own], weights)
    return found
