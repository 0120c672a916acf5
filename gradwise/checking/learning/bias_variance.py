"""Bias and variance of a learner, over resampled training sets (row F19).

    measured = bias_variance(fit_one, train, test, rounds=20, key=key)     any learner: fit_one(dataset, seed)
    measured = recipe_variance(recipe, dataset, rounds=20, key=key)        what `fit` trains by this recipe
    find_variance(measured)                                                GW807: which of the two dominates

Squared error (Geman, Bienenstock and Doursat 1992), with y = truth + noise and predictions f over training sets:

    E (y - f)^2  =  noise  +  (truth - E f)^2  +  E (f - E f)^2

The mean of R predictions estimates E f, so its square is too large by variance / R, which is subtracted. Without the
truth, noise is part of the bias. The 0-1 loss (Domingos 2000) uses the main prediction, the most common one: bias is
where it is wrong; variance, deviation from it, hurts where it is right and helps where it is wrong.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array, Key

from ...data.splits import join_parts
from ...records.finding import Finding
from ...records.score_scale import percent
from ...runtime import keys
from ...runtime.errors import RequestError
from ...specs.adapters import as_criterion
from ...specs.dataset import Dataset
from ...specs.recipe import Recipe
from ...training.prepare import split_labelled
from ...training.train import train as train_network
from ..codes import found


@dataclass(frozen=True)
class Squared:
    """error = noise + bias + variance (bias squared); for classification of the probabilities: the Brier score.
    Standard errors are jackknife estimates over the rounds. Without the truth, `noise` is None and part of `bias`."""

    error: float
    noise: float | None
    bias: float
    variance: float
    error_deviation: float
    bias_deviation: float
    variance_deviation: float


@dataclass(frozen=True)
class ZeroOne:
    """error = bias + net_variance, and net_variance = unbiased_variance - biased_variance."""

    error: float
    bias: float
    unbiased_variance: float
    biased_variance: float
    net_variance: float
    error_deviation: float
    bias_deviation: float
    net_deviation: float


@dataclass(frozen=True)
class BiasVariance:
    """The terms over `rounds` training sets of `size` examples, on `rows` test examples, and each example's own.

    `bias_each` and `variance_each` are of the squared error, or of the 0-1 loss if there are no probabilities.
    """

    task: str
    rounds: int
    size: int
    rows: int
    replacing: bool
    squared: Squared | None
    zero_one: ZeroOne | None
    bias_each: np.ndarray
    variance_each: np.ndarray


def _squared_each(predictions: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bias squared and variance of each example, unbiased, from predictions (rounds, n, k)."""
    rounds = len(predictions)
    variance = predictions.var(0, ddof=1).sum(1)
    return ((targets - predictions.mean(0)) ** 2).sum(1) - variance / rounds, variance


def _zero_one_each(answers: np.ndarray, targets: np.ndarray, classes: int) -> tuple[np.ndarray, ...]:
    """Error, bias, unbiased and biased variance of each example, from answers (rounds, n)."""
    votes = np.stack([(answers == label).sum(0) for label in range(classes)], 1) / len(answers)
    rows = np.arange(len(targets))
    right = votes[rows, targets]
    bias = (votes.argmax(1) != targets).astype(float)
    # Where the main prediction is wrong, answers that hit the target lower the error: with two classes, all others.
    return 1 - right, bias, (1 - bias) * (1 - right), bias * right


def _deviations(terms: Callable[[np.ndarray], np.ndarray], rounds: int) -> np.ndarray:
    """Standard errors of these terms by leaving each round out (the jackknife)."""
    if rounds < 3:
        return np.full(len(terms(np.arange(rounds))), math.nan)
    each = np.stack([terms(np.delete(np.arange(rounds), out)) for out in range(rounds)])
    return np.asarray(np.sqrt((rounds - 1) / rounds * ((each - each.mean(0)) ** 2).sum(0)))


def squared_terms(predictions: np.ndarray, targets: np.ndarray, truth: np.ndarray | None = None) -> Squared:
    """The terms of the squared error, from predictions (rounds, n, k) and targets (n, k), each summed over k."""
    noise = None if truth is None else float(((targets - truth) ** 2).sum(1).mean())
    aim = targets if truth is None else truth

    def terms(rounds: np.ndarray) -> np.ndarray:
        bias, variance = _squared_each(predictions[rounds], aim)
        return np.array([bias.mean() + variance.mean() + (noise or 0.0), bias.mean(), variance.mean()])

    error, bias, variance = (float(term) for term in terms(np.arange(len(predictions))))
    spread = (float(term) for term in _deviations(terms, len(predictions)))
    return Squared(error, noise, bias, variance, *spread)


def zero_one_terms(answers: np.ndarray, targets: np.ndarray, classes: int) -> ZeroOne:
    """The terms of the 0-1 loss, from answered classes (rounds, n) and targets (n,)."""

    def terms(rounds: np.ndarray) -> np.ndarray:
        error, bias, unbiased, biased = (each.mean() for each in _zero_one_each(answers[rounds], targets, classes))
        return np.array([error, bias, unbiased - biased, unbiased, biased])

    error, bias, net, unbiased, biased = (float(term) for term in terms(np.arange(len(answers))))
    spread = [float(term) for term in _deviations(terms, len(answers))[:3]]
    return ZeroOne(error, bias, unbiased, biased, net, *spread)


def _predicted(learned: Any, inputs: Any, outputs: int) -> np.ndarray:
    """A model's predictions: probabilities if it has them, 0 for classes it has never seen."""
    ask = getattr(learned, "predict_proba", None) or getattr(learned, "predict", None) or learned
    if not callable(ask):
        raise RequestError(
            f"`fit_one` must return something with `predict`, or a function; got {type(learned).__name__}."
        )
    told = np.asarray(ask(inputs))
    seen = getattr(learned, "classes_", None)
    if hasattr(learned, "predict_proba") and seen is not None and told.shape[1] < outputs:
        whole = np.zeros((len(told), outputs))
        whole[:, np.asarray(seen, int)] = told
        return whole
    return told


def decompose(
    predictions: np.ndarray, test: Dataset, size: int, *, replacing: bool = True, truth: np.ndarray | None = None
) -> BiasVariance:
    """The terms from predictions (rounds, n) or (rounds, n, k) for the rows of a test set."""
    kind = test.task.kind
    rounds, rows = predictions.shape[:2]
    if kind == "inputs" or rounds < 2 or rows != len(test):
        raise RequestError(f"bias and variance need a target, 2 rounds and {len(test)} rows; got {predictions.shape}.")
    zero_one = squared = None
    targets = test.targets if kind == "classes" else test.targets.astype(float).reshape(rows, -1)
    if kind == "classes":
        labels = predictions.ndim == 2
        answers = predictions.astype(int) if labels else predictions.argmax(2)
        zero_one = zero_one_terms(answers, targets, test.task.outputs)
        _, bias, unbiased, biased = _zero_one_each(answers, targets, test.task.outputs)
        each = (bias, unbiased - biased)
        predictions = np.zeros((rounds, rows, 0)) if labels else predictions
        targets = np.eye(test.task.outputs)[targets]
    else:
        predictions = predictions.reshape(rounds, rows, -1)
    if predictions.shape[2]:
        if predictions.shape[2] != targets.shape[1]:
            raise RequestError(f"predictions have {predictions.shape[2]} columns, the targets {targets.shape[1]}.")
        aim = None if truth is None else np.asarray(truth, float).reshape(rows, -1)
        squared = squared_terms(predictions, targets, aim)
        each = _squared_each(predictions, targets if aim is None else aim)
    return BiasVariance(kind, rounds, size, rows, replacing, squared, zero_one, *each)


def bias_variance(
    fit_one: Callable[[Dataset, int], Any],
    dataset: Dataset,
    test: Dataset,
    *,
    rounds: int = 20,
    size: int | None = None,
    replacing: bool = True,
    truth: np.ndarray | None = None,
    key: Key[Array, ""],
) -> BiasVariance:
    """Learns from `rounds` resampled training sets and decomposes the error on `test`.

    `fit_one(dataset, seed)` returns an object with `predict_proba` or `predict`, or a function of inputs. A resample
    has `size` examples: as many as there are, drawn with replacement (the bootstrap), or half of them drawn without.
    `truth` is the noise-free targets of the test examples, if known from a simulation.
    """
    size = (len(dataset) if replacing else len(dataset) // 2) if size is None else size
    if rounds < 2 or size < 1 or (not replacing and size > len(dataset)):
        raise RequestError(f"`rounds` must be at least 2 and `size` fit {len(dataset)} examples; got {rounds}, {size}.")
    random = keys.generator(keys.named(key, "resample"))
    told = []
    for _ in range(rounds):
        rows = random.choice(len(dataset), size, replace=replacing)
        seed = int(random.integers(2**31))
        told.append(_predicted(fit_one(dataset.take(rows), seed), test.inputs, test.task.outputs))
    return decompose(np.stack(told), test, size, replacing=replacing, truth=truth)


def recipe_variance(
    recipe: Recipe, dataset: Dataset, *, rounds: int = 20, size: int | None = None, replacing: bool = True, key: Any
) -> BiasVariance:
    """The same for `fit` with a recipe: the training set is resampled, validation and test set are fixed."""
    criterion = as_criterion(recipe.criterion)
    train, valid, test = split_labelled(recipe.split, criterion, dataset, key=keys.named(key, "split"))
    if test is None:
        raise RequestError("bias and variance need a test set: give the split one, `test=0.2`.")
    judged = test

    def fit_one(resampled: Dataset, seed: int) -> Any:
        whole, split = join_parts(resampled, valid, judged)
        return train_network(dataclasses.replace(recipe, split=split), whole, key=keys.from_seed(seed)).predictor

    return bias_variance(fit_one, train, judged, rounds=rounds, size=size, replacing=replacing, key=key)


def find_variance(measured: BiasVariance) -> tuple[Finding, ...]:
    """GW807: which term dominates, and what to do."""
    if measured.zero_one is not None:
        of, name = measured.zero_one, "test error"
        bias, variance = of.bias, of.net_variance
        doubt = math.hypot(of.bias_deviation, of.net_deviation)
        told = f"{name} {percent(of.error)} = bias {percent(bias)} + variance {percent(variance)} "
        right, wrong = percent(of.unbiased_variance), percent(of.biased_variance)
        told += f"({right} where the main prediction is right, minus {wrong})"
    else:
        terms = measured.squared
        assert terms is not None
        bias, variance = terms.bias, terms.variance
        doubt = math.hypot(terms.bias_deviation, terms.variance_deviation)
        kind = "bias and noise" if terms.noise is None else f"noise {terms.noise:.3g} + bias"
        told = f"squared test error {terms.error:.3g} = {kind} {bias:.3g} + variance {variance:.3g}"
    doubt = 0.0 if math.isnan(doubt) else doubt
    side = "neither" if abs(bias - variance) <= 2 * doubt else "bias" if bias > variance else "variance"
    follows = {
        "bias": "Bias dominates: more of the same data will not help; capacity, features or training will.",
        "variance": "Variance dominates: results depend on which examples were drawn.",
        "neither": "Neither dominates.",
    }[side]
    step = {
        "bias": "a larger network, trained longer: gradwise search DATA over model.widths and optimiser.learning_rate",
        "variance": "more data, a stronger penalty, earlier stopping, or an ensemble of networks",
        "neither": "more rounds to tell them apart: recipe_variance(recipe, dataset, rounds=50, key=key)",
    }[side]
    what = f"over {measured.rounds} resampled training sets of {measured.size:,}: {told}. {follows}"
    evidence: dict[str, Any] = {"bias": bias, "variance": variance, "deviation": doubt, "dominates": side}
    return (found("GW807", what, where="test", next=step, **evidence),)
