"""The power law a + b n^-c of an error against the number of examples: fitted, and extrapolated to twice as many.

a, b, c = fit_law(counts / counts[-1], errors, noise)      of shares of the largest count
seen = extrapolate(counts, errors, noise)                  None if there are too few errors
seen.law, seen.predicted, seen.interval                    of counts; at twice the largest; 90 % of a bootstrap
"""

import math
from dataclasses import dataclass

import numpy as np

_DRAWS = 200
_POWERS = np.geomspace(0.02, 2.0, 80)


@dataclass(frozen=True)
class Extrapolated:
    """`law` is (a, b, c) of a + b n^-c, `predicted` its error at twice the largest count, `interval` 90 % of that."""

    law: tuple[float, float, float]
    predicted: float
    interval: tuple[float, float]


def power_law(values: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """a + b shares^-c for values (a, b, c)."""
    return values[0] + values[1] * shares ** -values[2]


def _on_grid(shares: np.ndarray, errors: np.ndarray, weights: np.ndarray, floor: float) -> np.ndarray:
    """(a, b, c) for each row of errors, c one of a few: for a given c the best a and b are known in closed form."""
    best, least = np.zeros((len(errors), 3)), np.full(len(errors), np.inf)
    share = weights**2 / np.sum(weights**2)
    for power in _POWERS:
        across = shares**-power
        middle, heights = float(share @ across), errors @ share
        slope = (errors * (across - middle)) @ share / max(float(share @ (across - middle) ** 2), 1e-30)
        below = heights - slope * middle < floor
        slope = np.where(below & (floor == 0.0), errors @ (share * across) / float(share @ across**2), slope)
        slope = np.maximum(slope, 0.0)
        base = np.maximum(heights - slope * middle, floor)
        cost = ((base[:, None] + slope[:, None] * across - errors) ** 2) @ share
        found_better = cost < least
        least = np.where(found_better, cost, least)
        here = np.stack([base, slope, np.full(len(errors), power)], axis=1)
        best = np.where(found_better[:, None], here, best)
    return best


def fit_law(shares: np.ndarray, errors: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """(a, b, c) of errors = a + b shares^-c by least squares; a at least 0 where no error is below it."""
    from scipy.optimize import least_squares

    spread = max(float(np.ptp(errors)), 1e-12)
    floor = 0.0 if errors.min() >= 0 else -np.inf
    weights = 1 / np.maximum(noise, 0.02 * spread)
    low, high = np.array([floor, 0.0, 0.02]), np.array([np.inf, np.inf, 2.0])
    start = _on_grid(shares, errors[None], weights, floor)[0]
    inside = np.clip(start, low + 1e-9 * spread, high - 1e-9)
    done = least_squares(
        lambda given: (power_law(given, shares) - errors) * weights,
        inside,
        bounds=(low, high),
        x_scale=[spread, spread, 1.0],
    )
    return np.asarray(done.x)


def extrapolate(counts: np.ndarray, errors: np.ndarray, noise: np.ndarray, *, seed: int = 0) -> Extrapolated | None:
    """The power law, the error it predicts at twice the examples and a bootstrap interval of that.

    If `noise` is 0 (unknown), the residuals of the law are used instead.
    """
    shares = counts / counts[-1]
    if len(errors) < 4 or not np.isfinite(errors).all() or np.ptp(errors) == 0:
        return None
    law = fit_law(shares, errors, noise)
    smooth = power_law(law, shares)
    left = math.sqrt(float(np.sum((smooth - errors) ** 2)) / max(1, len(errors) - 3))
    noise = np.where(noise > 0, noise, left)
    least = 0.0 if errors.min() >= 0 else -np.inf
    drawn = np.random.default_rng(seed).normal(size=(_DRAWS, len(noise)))
    several = np.maximum(smooth + noise * drawn, least)
    weights = 1 / np.maximum(noise, 0.02 * float(np.ptp(errors)))
    twice = np.array([2.0])
    ends = [float(power_law(one, twice)[0]) for one in _on_grid(shares, several, weights, least)]
    low, high = np.quantile(ends, (0.05, 0.95))
    a, b, c = float(law[0]), float(law[1] * counts[-1] ** law[2]), float(law[2])
    return Extrapolated((a, b, c), float(power_law(law, twice)[0]), (float(low), float(high)))
