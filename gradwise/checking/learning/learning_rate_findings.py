"""From measurements of the learning rate to findings (rows B2, B4, H5, F18, J5).

    find_rates(measure_rates(subject, rehearsal, key=key))       findings GW501 to GW505
    find_rates(dataclasses.replace(measured, noise=NoiseScale(4096.0, 2000.0, 8000.0, 64, 16)))

A rate is too large or too small if some multiple of the user's own updates trains much better; update sizes
and batch noise are reported only if the rate itself is right.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from ...records.finding import Finding
from ..codes import found
from .largest_rate import RateFound
from .learning_rate import STEP, RatesMeasured, measured_updates

LARGE_RATIO, SMALL_RATIO = 1e-1, 1e-5
_OFF = 8.0  # the factor by which a mini-batch size must miss the noise scale to be reported


def _times(factor: float) -> str:
    """A factor of 3^k, rounded."""
    exponent = math.floor(math.log10(factor))
    return f"{round(factor / 10**exponent) * 10**exponent:.0f}"


def _find_ladder(measured: RatesMeasured) -> list[Finding]:
    """The user's own updates against multiples of them."""
    if measured.stand_in or len(measured.factors) < 3 or not np.isfinite(measured.losses[0]).all():
        return []
    quarters, factors = measured.losses, measured.factors
    own = int(np.argmin(np.abs(factors - 1.0)))
    base = float(quarters[0, -1])
    ends = np.where(np.isfinite(quarters).all(axis=1), quarters[:, -1], np.inf)
    best = int(np.argmin(ends))
    gain, gained = base - float(ends[best]), base - float(ends[own])
    scale = max(abs(base), gain, 1e-30)
    if gain < 0.02 * scale:
        return []
    numbers = {"factors": factors.tolist(), "ends": ends.tolist(), "start": base, "best_factor": float(factors[best])}
    lost = not math.isfinite(gained)
    peak = math.inf if lost else float(np.max(quarters[own] - quarters[0]))
    factor = float(factors[best])
    trains = gain >= 0.1 * scale
    stays = not math.isfinite(measured.rehearsed[1]) or measured.rehearsed[1] > base - 0.5 * gain
    if factor < 1 and (lost or peak > 0.5 * scale) and trains and (lost or (gained < 0.1 * gain and stays)):
        stable = [float(f) for f, end in zip(factors, ends, strict=True) if 0 < f < 1 and base - end > 0.1 * gain]
        end_text = "is NaN" if lost else f"is {ends[own]:.3g}, after a peak of {base + peak:.3g}"
        what = (
            f"the learning rate is too large: after {measured_updates(measured)} updates the loss {end_text} "
            f"(untrained {base:.3g}); with updates {_times(1 / factor)} times smaller it falls to {ends[best]:.3g}."
        )
        step = f"divide the learning rate by about {_times(1 / factor)}"
        step += f": optax.sgd({measured.rate * factor:.1g})" if math.isfinite(measured.rate) else ""
        numbers["largest_stable_factor"] = max(stable, default=math.nan)
        return [found("GW501", what, where="optimiser", next=step, **numbers)]
    slow = factor >= STEP**4 and gained < 0.05 * gain and gain >= 0.2 * scale
    if slow and not measured.warming:
        what = (
            f"the learning rate is too small: {measured_updates(measured)} updates took the loss from {base:.4g} to "
            f"{ends[own]:.4g}; with updates {_times(factor)} times larger it falls to {ends[best]:.3g}."
        )
        step = f"multiply the learning rate by about {_times(factor / 3)}"
        step += f": optax.sgd({measured.rate * factor / 3:.1g})" if math.isfinite(measured.rate) else ""
        return [found("GW502", what, where="optimiser", next=step, **numbers)]
    return []


def _find_ratios(measured: RatesMeasured) -> list[Finding]:
    ratios = measured.ratios
    if measured.stand_in:
        return []
    with np.errstate(invalid="ignore"):  # no update at all: a schedule that has ended, or GW303
        large, small = ratios > LARGE_RATIO, (ratios > 0) & (ratios < SMALL_RATIO) & ~measured.sparse
    small &= not measured.warming
    if not (large | small).any():
        return []
    away = np.where(large | small, np.abs(np.log10(np.where(ratios > 0, ratios, 1e-3)) + 3), -1.0)
    worst = int(np.argmax(away))
    others = int((large | small).sum()) - 1
    beside = f" ({others} more weight matrices likewise)" if others else ""
    name = measured.names[worst]
    what = f"an update changes `{name}` by {ratios[worst]:.1e} of its size; about 1e-3 is usual{beside}."
    turn = "divide" if large[worst] else "multiply"
    factor = min(1e3, ratios[worst] * 1e3 if large[worst] else 1e-3 / ratios[worst])
    step = f"{turn} the learning rate by about {_times(factor)}, or scale the initial weights of this parameter"
    numbers = {one: float(ratio) for one, ratio in zip(measured.names, ratios, strict=True) if math.isfinite(ratio)}
    return [found("GW503", what, where=name, next=step, ratios=numbers)]


def _find_noise(measured: RatesMeasured) -> list[Finding]:
    noise = measured.noise
    if noise is None or not math.isfinite(noise.value):
        return []
    if measured.size * _OFF < noise.low:
        what = f"batches of {measured.size} are noisier than necessary"
    elif measured.size > _OFF * noise.high:
        what = f"batches of {measured.size} average over more examples than the gradient noise requires"
    else:
        return []
    wanted = 2 ** max(0, round(math.log2(max(1.0, noise.value))))
    what += (
        f": the noise scale is about {noise.value:.2g} ({noise.low:.2g} to {noise.high:.2g}), "
        "beyond which larger batches hardly help."
    )
    step = f"try batches of about {wanted}, and tune the learning rate again"
    return [found("GW504", what, where="batch", next=step, **dataclasses.asdict(noise), batch_size=measured.size)]


def _find_curvature(measured: RatesMeasured) -> list[Finding]:
    if not measured.rate > measured.limit:
        return []
    what = (
        f"the Hessian's largest eigenvalue is {measured.eigenvalue:.3g}, so plain gradient descent diverges "
        f"above a rate of {measured.limit:.3g}, at least at first; yours is {measured.rate:.3g}."
    )
    step = f"optax.sgd({measured.limit / 2:.2g})"
    numbers: dict[str, Any] = {"eigenvalue": measured.eigenvalue, "residual": measured.residual, "rate": measured.rate}
    return [found("GW505", what, where="optimiser", next=step, limit=measured.limit, **numbers)]


def find_rates(measured: RatesMeasured) -> tuple[Finding, ...]:
    """One finding per cause: if the rate itself is wrong, update sizes are not reported too."""
    told = _find_ladder(measured)
    rest = [] if told else [*_find_ratios(measured), *_find_noise(measured)]
    return (*told, *_find_curvature(measured), *rest)


def find_limit(rates: RateFound, own: float) -> tuple[Finding, ...]:
    """GW506: the largest learning rate that trains, the one that trains best, and where the recipe's own stands."""
    path, tried = rates.paths[0][0], rates.tried
    above = tried.rates[(tried.rates > rates.largest) & tried.diverged]
    what = f"training starts up to a learning rate of {rates.largest:.2g}"
    what += f" and diverges at {above[0]:.2g}" if len(above) else ", the largest that was tried"
    what += f"; the loss falls most at {rates.recommended:.2g}. The recipe has {own:.2g}."
    off = max(own / rates.recommended, rates.recommended / own)
    step = f"--set {path}={rates.recommended:.2g}" if off > 2.0 else ""
    level = "warning" if own > rates.largest else ""
    numbers = {"largest": rates.largest, "recommended": rates.recommended, "own": own}
    return (found("GW506", what, where=path, next=step, level=level, **numbers),)
