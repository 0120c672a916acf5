"""From the evidence of a check to figures and tables: each area's numbers as pictures with words.

tuple(gradient_figures(checked.evidence.gradient))
tuple(growth_figures(checked.evidence.growth))
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...records.evidence.check_evidence import (
    ChoicesEvidence,
    GradientEvidence,
    GrowthEvidence,
    OverfitEvidence,
    RatesEvidence,
    StartEvidence,
)
from ...records.score_scale import ScoreScale
from .. import wording
from ..blocks import Block, Figure, Prose, Row, Table
from ..plots import check_plots
from ..plots.check_plots import DifferenceCurve, Dot, GrowthCurve
from .record_values import SHOWN, left_of, tall_of

_RATIO = "update / weights"
_SOUND_RATIO = 1e-3  # the chapter's rule of thumb for |update| / |weights|


def dots_figure(name: str, title: str, said: str, dots: Sequence[Dot], table: Table, **look: Any) -> Figure:
    """Dots by name, the worst `SHOWN` of them."""
    shown = dots[:SHOWN]
    draw, margins = partial(check_plots.draw_dots, shown, **look), (left_of(dot.name for dot in shown), 40, 14, 24)
    return Figure(name, title, said, draw, table, width=430, height=tall_of(len(shown)), margins=margins)


# --- gradient


def _difference_figures(seen: GradientEvidence) -> Iterator[Figure]:
    epsilons, forward, central = (np.array(values) for values in (seen.epsilons, seen.forward, seen.central))
    if len(epsilons) < 2 or not np.isfinite(central).any():
        return
    best = int(np.nanargmin(central))
    rows: tuple[Row, ...] = tuple(
        (wording.number(e), wording.number(f), wording.number(c))
        for e, f, c in zip(epsilons, forward, central, strict=True)
    )
    said = "The difference falls with the step until rounding error dominates. Central differences come closest, to "
    said += f"{wording.number(central[best])}, at a step of {wording.number(epsilons[best])}."
    draw = partial(check_plots.draw_difference_curve, DifferenceCurve(epsilons, forward, central))
    table = Table("Numbers", ("step", "forward", "central"), rows, (0, 1, 2))
    yield Figure("differences", "Gradient against finite differences, by step", said, draw, table, height=280)


def gradient_figures(seen: GradientEvidence) -> Iterator[Figure]:
    """The error of finite differences by step, and the gradient's error by parameter."""
    yield from _difference_figures(seen)
    leaves = [leaf for leaf in seen.parameters if math.isfinite(leaf.error)]
    if not leaves:
        return
    leaves = sorted(leaves, key=lambda leaf: (not leaf.wrong, -leaf.error))
    dots = [Dot(leaf.name, leaf.error, marked=leaf.wrong > 0) for leaf in leaves]
    wrong, turned = sum(dot.marked for dot in dots), [leaf for leaf in leaves if leaf.turned]
    rows: tuple[Row, ...] = tuple(
        (
            leaf.name,
            wording.number(leaf.error),
            wording.whole(leaf.looked_at),
            wording.whole(leaf.wrong),
            "wrong sign" if leaf.turned else "wrong" if leaf.wrong else "right",
        )
        for leaf in leaves
    )
    said = f"All {len(dots)} agree; the largest difference is {wording.number(dots[0].value)}."
    if wrong:
        signs = f", {len(turned)} of them with the wrong sign" if turned else ""
        said = f"{wrong} of {len(dots)} parameters have a wrong gradient (diamonds){signs}."
    table = Table("Numbers", ("parameter", "largest error", "entries checked", "wrong", ""), rows, (1, 2, 3))
    title, across = "The gradient's error by parameter", "relative error of the gradient"
    yield dots_figure("gradient-errors", title, said, dots, table, across=across)


# --- learning


def overfit_figures(seen: OverfitEvidence) -> Iterator[Figure]:
    """Whether a handful of examples can be learned by heart."""
    curves = np.array(seen.curves)
    if curves.ndim != 2 or curves.shape[1] < 2 or not np.isfinite(curves).any():
        return
    count = wording.whole(seen.examples)
    lowest = float(np.nanmin(curves))
    how = "memorised" if seen.learned else "not memorised"
    rows: tuple[Row, ...] = tuple(
        (str(i + 1), wording.number(start), wording.number(end))
        for i, (start, end) in enumerate(zip(seen.starts, seen.ends, strict=True))
    )
    said = f"{count} examples are {how}: the loss goes from {wording.number(float(np.nanmax(curves[:, 0])))} to "
    said += f"{wording.number(lowest)}. Each line is one random start."
    draw = partial(check_plots.draw_falling, list(curves), across="steps of L-BFGS")
    table = Table("Numbers", ("start", "loss before", "loss after"), rows, (1, 2))
    yield Figure("overfit", "Memorising a few examples with L-BFGS", said, draw, table)


def start_figures(seen: StartEvidence) -> Iterator[Figure]:
    """The loss over the first updates of the user's own training."""
    losses = np.array(seen.losses)
    if len(losses) < 3 or not np.isfinite(losses).any():
        return
    sound = losses[np.isfinite(losses)]
    beside = f" A constant prediction has {wording.number(seen.constant)}." if math.isfinite(seen.constant) else ""
    rows: tuple[Row, ...] = tuple(
        (str(i), wording.number(float(losses[i])))
        for i in np.unique(np.linspace(0, len(losses) - 1, 11).round().astype(int))
    )
    first, last = wording.number(float(sound[0])), wording.number(float(sound[-1]))
    said = f"The loss goes from {first} to {last} in {len(losses)} updates.{beside}"
    draw, table = partial(check_plots.draw_falling, [losses]), Table("Numbers", ("update", "loss"), rows, (0, 1))
    yield Figure("rehearsal", "The first updates of your training", said, draw, table)


def growth_figures(seen: GrowthEvidence) -> Iterator[Figure]:
    """Training and validation error against the number of examples, and what twice as many would give."""
    counts, *means = (np.array(values, float) for values in (seen.counts, seen.train, seen.valid))
    if len(counts) < 2 or not all(np.isfinite(mean).all() for mean in means):
        return
    spreads = [np.nan_to_num(np.array(values)) for values in (seen.train_errors, seen.valid_errors)]
    fitted, predicted, metric = seen.law, seen.predicted, seen.metric
    scale = ScoreScale.of_metric(metric)
    write = scale.write
    low, high = seen.interval
    said = f"Validation goes from {write(float(means[1][0]))} to {write(float(means[1][-1]))}."
    if fitted and math.isfinite(predicted):
        known = math.isfinite(low) and math.isfinite(high)
        within = f" (90\u202f% confidence interval {write(low)} to {write(high)})" if known else ""
        said += f" With twice the examples expect {write(predicted)}{within}, by a power law fitted to the curve "
        said += "(dotted)."
    rows: tuple[Row, ...] = tuple(
        (wording.whole(n), write(float(t)), write(float(v))) for n, t, v in zip(counts, *means, strict=True)
    )
    data = GrowthCurve(counts, means[0], means[1], spreads[0], spreads[1], fitted, predicted)
    draw = partial(check_plots.draw_growth, data, scale=scale)
    table = Table("Numbers", ("examples", "training", "validation"), rows, (0, 1, 2))
    yield Figure("growth", "Error against the number of examples", said, draw, table, height=280)


# --- rates


def _ladder_figures(seen: RatesEvidence) -> Iterator[Figure]:
    factors, ends = np.array(seen.factors), np.array(seen.losses)
    if len(factors) < 3:
        return
    moving = factors > 0
    still = np.abs(ends[~moving & np.isfinite(ends)])
    # Ending above the loss of no training at all is as bad as ending nowhere.
    sound = np.isfinite(ends) & (ends <= 2 * still.max(initial=0.0 if len(still) else math.inf)) & moving
    if not sound.any():
        return
    largest, best = float(factors[sound].max()), float(factors[sound][np.argmin(ends[sound])])
    bounded = largest < float(factors.max())
    said = f"The loss is lowest at {wording.number(best)} times your learning rate"
    said += f"; beyond {wording.number(largest)} times training fails (crosses)." if bounded else "; no factor failed."
    rows: tuple[Row, ...] = tuple(
        (wording.number(f), wording.number(e) if ok else "failed")
        for f, e, ok in zip(factors[moving], ends[moving], sound[moving], strict=True)
    )
    drawn = (factors[moving], np.where(sound, ends, np.nan)[moving])
    draw = partial(check_plots.draw_ladder, drawn, largest=largest if bounded else math.nan)
    table = Table("Numbers", ("times yours", "loss"), rows, (0, 1))
    yield Figure("ladder", "The loss against the learning rate", said, draw, table, height=280)


def learning_rate_figures(seen: RatesEvidence) -> Iterator[Block]:
    """The ladder of rates, the size of updates by parameter, and what bounds rate and batch."""
    yield from _ladder_figures(seen)
    judged = [(name, ratio) for name, ratio in zip(seen.names, seen.ratios, strict=True) if math.isfinite(ratio)]
    if judged:
        judged.sort(key=lambda pair: -abs(math.log10(max(pair[1], 1e-30) / _SOUND_RATIO)))
        dots = [Dot(name, ratio, marked=not 1e-5 < ratio < 0.1) for name, ratio in judged]
        middle = float(np.median([ratio for _, ratio in judged]))
        rows: tuple[Row, ...] = tuple((name, wording.number(ratio)) for name, ratio in judged)
        said = f"About 1 in 1,000 is the rule of thumb; here the median is {wording.number(middle)}. The parameters "
        said += "farthest from it come first."
        title, table = "Size of updates relative to weights", Table("Numbers", ("parameter", _RATIO), rows, (1,))
        yield dots_figure("ratios", title, said, dots, table, across=_RATIO, line=_SOUND_RATIO, told="1/1,000")
    yield _rate_table(seen)


def _rate_table(seen: RatesEvidence) -> Table:
    known = {
        "largest eigenvalue of the Hessian": seen.eigenvalue,
        "largest stable rate of gradient descent, 2 / eigenvalue": seen.limit,
        "your learning rate": seen.rate,
    }
    facts = [(name, wording.number(value)) for name, value in known.items() if math.isfinite(value)]
    noise = seen.noise
    if noise is not None and math.isfinite(noise.value):
        ends = f" ({wording.number(noise.low)} to {wording.number(noise.high)})" if math.isfinite(noise.low) else ""
        facts.append(("gradient noise scale, in examples", f"{wording.number(noise.value)}{ends}"))
    facts.append(("your mini-batch size", wording.whole(seen.size)))
    return Table("Curvature and noise", ("", ""), tuple(facts), (1,))


# --- choices


def choice_blocks(seen: ChoicesEvidence) -> Iterator[Block]:
    """What the outputs and the loss were recognised as."""
    kinds = {
        "softmax": "cross-entropy of a softmax",
        "logistic": "cross-entropy of sigmoids",
        "squared": "squared error",
    }
    said = []
    if seen.kind:
        said.append(f"The loss was recognised as the {kinds.get(seen.kind, seen.kind)}.")
    if seen.penalty > 0 and math.isfinite(seen.rest):
        said.append(f"Its penalty is {wording.number(seen.penalty)}, beside {wording.number(seen.rest)} of the rest.")
    if said:
        yield Prose(" ".join(said))
