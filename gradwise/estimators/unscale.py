"""Undoes scaling: from a network's inputs back to raw columns.

    unscaled = unscale(predictor.scaler, reconstructions) if can_unscale(predictor.scaler) else None

A number outside the range of a bounded scaler becomes the nearest end of the training range, and a constant column its
constant. Principal components stay within their subspace. Categories cannot be restored: a mixture of one-hot
inputs is not a category.
"""

from typing import Any

import numpy as np

from ..data.fitted_scalers import Affine, Bounded, Chained, Interpolated, Logarithmic, Projection, Rooted, SideBySide
from ..specs.fitted_scaler import FittedScaler


def can_unscale(scaler: FittedScaler) -> bool:
    """Whether this scaler can be undone."""
    if isinstance(scaler, Chained):
        return all(can_unscale(step) for step in scaler.steps)
    if isinstance(scaler, SideBySide):
        return all(can_unscale(one) for one in scaler.scalers)
    return isinstance(scaler, (Affine, Bounded, Logarithmic, Rooted, Interpolated, Projection))


def _along_a_line(scaled: np.ndarray, start: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """start + scaled * spread; a spread that is infinite marks a column that was constant."""
    constant = np.isinf(spread)
    return np.where(constant, start, start + scaled * np.where(constant, 0.0, spread))


def _along_knots(scaler: Interpolated, scaled: np.ndarray) -> np.ndarray:
    """Each column back through its own broken line, and straight on beyond it where it has a slope there."""
    raw = np.empty_like(scaled)
    for j in range(scaled.shape[1]):
        knots, scores, slope = scaler.knots[:, j], scaler.scores[:, j], scaler.slope[j]
        within = np.clip(scaled[:, j], scores[0], scores[-1])
        raw[:, j] = np.interp(within, scores, knots)
        if slope > 0:
            raw[:, j] += (scaled[:, j] - within) / slope
    return raw


def _width(scaler: FittedScaler, columns: int) -> int:
    """How many inputs a scaler makes of so many columns."""
    return int(scaler.apply(np.zeros((1, columns))).shape[1])


def _side_by_side(scaler: SideBySide, scaled: np.ndarray) -> np.ndarray:
    """Each block back to its columns; indicators of missing values have none."""
    raw = np.empty((len(scaled), sum(len(picked) for picked in scaler.columns)))
    start = 0
    for picked, one in zip(scaler.columns, scaler.scalers, strict=True):
        width = _width(one, len(picked))
        raw[:, picked] = unscale(one, scaled[:, start : start + width])
        start += width
    return raw


def unscale(scaler: FittedScaler, scaled: Any) -> np.ndarray:
    """The raw rows (n, columns) of inputs (n, inputs), for a scaler that `can_unscale`."""
    scaled = np.asarray(scaled, np.float64)
    if isinstance(scaler, Chained):
        for step in reversed(scaler.steps):
            scaled = unscale(step, scaled)
        return scaled
    if isinstance(scaler, Affine):
        return _along_a_line(scaled, scaler.shift, scaler.scale)
    if isinstance(scaler, Bounded):
        return _along_a_line(np.clip(scaled, 0.0, 1.0), scaler.low, scaler.spread)
    if isinstance(scaler, Logarithmic):
        return np.sign(scaled) * np.expm1(np.abs(scaled))
    if isinstance(scaler, Rooted):
        return np.sign(scaled) * scaled**2
    if isinstance(scaler, Interpolated):
        return _along_knots(scaler, scaled)
    if isinstance(scaler, Projection):
        return np.asarray(scaler.mean + scaled @ np.linalg.pinv(scaler.axes))
    assert isinstance(scaler, SideBySide)
    return _side_by_side(scaler, scaled)
