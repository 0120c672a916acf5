"""How good samples are, by a Parzen window (row F13): test rows under normal kernels around the samples.

    found = parzen(samples, test, valid)
    found.log_likelihood, found.standard_error, found.deviation

p(x) = mean over samples s of N(x; s, sigma^2 I), with sigma chosen on validation rows. It ranks samplers that drew
equally many samples of the same inputs; in many dimensions it is far below the true log-likelihood, and a
model that copies training rows does well. So it is reported with its sigma and its standard error.

scikit-learn's `KernelDensity` is not used: its trees lose digits in many dimensions (with 2,000 normal samples and
sigma 1, log p is off by 4 for 50 inputs and by 690 for 784), and at 784 inputs it takes 80 times as long.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.errors import RequestError

_CHUNK = 256
_RATIO = 2.0 ** (1.0 / 3.0)
_SPREAD = _RATIO ** np.arange(-6, 7)  # around the typical distance to the nearest sample
_WIDENINGS = 8


@dataclasses.dataclass(frozen=True)
class Parzen:
    """Mean log-likelihood of the test rows with its standard error, and how sigma was chosen."""

    log_likelihood: float
    standard_error: float
    deviation: float
    tried: np.ndarray  # deviations, rising
    valid: np.ndarray  # the mean log-likelihood of the validation rows under each


def _matrix(rows: Any, name: str, inputs: int | None = None) -> np.ndarray:
    rows = np.asarray(rows, np.float64)
    rows = rows.reshape(len(rows), -1) if rows.ndim else rows.reshape(0, 0)
    if not rows.size or not np.isfinite(rows).all():
        raise RequestError(f"the {name} rows of a Parzen window must be finite and not empty.")
    if inputs is not None and rows.shape[1] != inputs:
        raise RequestError(f"the {name} rows have {rows.shape[1]} inputs, the samples {inputs}: give the same inputs.")
    return rows


def _squares(rows: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Squared distances between all rows and all samples, by one product."""
    lengths = np.sum(rows**2, axis=1)[:, None] + np.sum(samples**2, axis=1)[None]
    return np.maximum(lengths - 2.0 * rows @ samples.T, 0.0)


def log_likelihoods(rows: Any, samples: Any, deviations: Sequence[float] | np.ndarray) -> np.ndarray:
    """log p(x) of each row (last axis) under each kernel width (first axis), in 64 bits, some rows at a time."""
    samples = _matrix(samples, "sample")
    rows = _matrix(rows, "other", samples.shape[1])
    widths = np.asarray(deviations, np.float64)
    if widths.ndim != 1 or not len(widths) or not (np.isfinite(widths).all() and widths.min() > 0):
        raise RequestError(f"the deviations of a Parzen window must be positive numbers; got {deviations!r}.")
    centre = samples.mean(axis=0)  # a product of large numbers far from 0 would lose the distances
    rows, samples = rows - centre, samples - centre
    constant = np.log(len(samples)) + 0.5 * rows.shape[1] * np.log(2.0 * np.pi * widths**2)
    found = np.empty((len(widths), len(rows)))
    for start in range(0, len(rows), _CHUNK):
        squares = _squares(rows[start : start + _CHUNK], samples)
        least = squares.min(axis=1, keepdims=True)
        beyond = least - squares
        for number, width in enumerate(widths):
            sums = np.sum(np.exp(beyond / (2.0 * width**2)), axis=1)
            found[number, start : start + _CHUNK] = np.log(sums) - least[:, 0] / (2.0 * width**2) - constant[number]
    return found


def _typical(valid: np.ndarray, samples: np.ndarray) -> float:
    """The deviation that normal noise would need to carry a sample to its nearest validation row."""
    centre = samples.mean(axis=0)
    least = [
        _squares(valid[start : start + _CHUNK] - centre, samples - centre).min(axis=1)
        for start in range(0, len(valid), _CHUNK)
    ]
    return float(np.sqrt(np.mean(np.concatenate(least)) / valid.shape[1]))


def _chosen(valid: np.ndarray, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Deviations around the typical one, more of them while the best stands at an end, and their scores."""
    typical = _typical(valid, samples)
    if typical <= 1e-6 * max(1.0, float(np.abs(samples).max())):
        raise RequestError(
            "every validation row is among the samples, so the best deviation is 0. Give validation rows that were "
            "not trained on, or `deviations`."
        )
    tried = typical * _SPREAD
    scores = log_likelihoods(valid, samples, tried).mean(axis=1)
    for _ in range(_WIDENINGS):
        best = int(np.argmax(scores))
        if 0 < best < len(tried) - 1:
            break
        more = tried[0] * _SPREAD[:6] if best == 0 else tried[-1] * _SPREAD[-6:]
        added = log_likelihoods(valid, samples, more).mean(axis=1)
        order = np.argsort(np.concatenate([tried, more]))
        tried, scores = np.concatenate([tried, more])[order], np.concatenate([scores, added])[order]
    return tried, scores


def parzen(samples: Any, test: Any, valid: Any, deviations: Sequence[float] | None = None) -> Parzen:
    """The mean log-likelihood of the test rows under the samples, sigma the best for the validation rows.

    Without `deviations` sigma is looked for around the typical distance to the nearest sample.
    """
    samples = _matrix(samples, "sample")
    test = _matrix(test, "test", samples.shape[1])
    valid = _matrix(valid, "validation", samples.shape[1])
    if deviations is None:
        tried, scores = _chosen(valid, samples)
    else:
        tried = np.sort(np.asarray(deviations, np.float64))
        scores = log_likelihoods(valid, samples, tried).mean(axis=1)
    deviation = float(tried[int(np.argmax(scores))])
    values = log_likelihoods(test, samples, [deviation])[0]
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
    return Parzen(float(values.mean()), error, deviation, tried, scores)
