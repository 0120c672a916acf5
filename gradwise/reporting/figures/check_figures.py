"""From the evidence of a check to figures and tables: each area's numbers as pictures with words.

    tuple(gradient_figures(checked.evidence["gradient"]))
    tuple(growth_figures(checked.evidence["growth"]))

Evidence is plain JSON values, perhaps of an older version: what is missing is not drawn.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from .. import wording
from ..blocks import Block, Cell, Figure, Prose, Row, Table
from ..plots import check_plots
from ..plots.check_plots import DifferenceCurve, Dot, GrowthCurve
from ..plots.run_plots import LETTER

Plain = Mapping[str, Any]
SHOWN = 24
_ROW = 25
_SOUND_RATIO = 1e-3  # the chapter's rule of thumb for |update| / |weights|


def as_number(value: Any) -> float:
    """A number, or not-a-number for what is none."""
    usable = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return float(value) if usable else math.nan


def array(values: Any) -> np.ndarray:
    """Numbers of any nesting; null is not-a-number. Empty where it is no such list."""
    if not isinstance(values, list | tuple | np.ndarray):
        return np.zeros(0)
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        return np.zeros(0)


def rows_of(plain: Any) -> list[Plain]:
    """The dictionaries in a list."""
    return [one for one in plain if isinstance(one, Mapping)] if isinstance(plain, list | tuple) else []


def part_of(plain: Plain, name: str) -> Plain:
    """The dictionary under a name; an empty one where there is none."""
    found = plain.get(name)
    return found if isinstance(found, Mapping) else {}


def tall_of(count: int) -> int:
    return 66 + _ROW * count


def left_of(names: Iterable[str]) -> int:
    return 22 + round(LETTER * max([min(26, len(name)) for name in names], default=4))


def dots_figure(name: str, title: str, said: str, dots: Sequence[Dot], table: Table, **look: Any) -> Figure:
    """Dots by name, the worst `SHOWN` of them."""
    shown = dots[:SHOWN]
    return Figure(
        name,
        title,
        said,
        partial(check_plots.draw_dots, shown, **look),
        table,
        width=430,
        height=tall_of(len(shown)),
        margins=(left_of(dot.name for dot in shown), 40, 14, 24),
    )


# --- gradient


def _is_turned(leaf: Plain) -> bool:
    """Whether the gradient has the wrong sign where it is wrong."""
    analytic, numeric = array(leaf.get("analytic")), array(leaf.get("numeric"))
    if not leaf.get("wrong") or len(analytic) != len(numeric) or not len(analytic):
        return False
    sizes = np.abs(analytic) + np.abs(numeric)
    against = (analytic * numeric < 0) & (sizes > 1e-3 * sizes.max())
    return bool(against.sum() > 0.5 * (sizes > 1e-3 * sizes.max()).sum())


def _difference_figures(plain: Plain) -> Iterator[Figure]:
    curve = part_of(plain, "curve")
    epsilons, forward, central = (array(curve.get(name)) for name in ("epsilons", "forward", "central"))
    if len(epsilons) < 2 or not len(epsilons) == len(forward) == len(central) or not np.isfinite(central).any():
        return
    best = int(np.nanargmin(central))
    rows: tuple[Row, ...] = tuple(
        (wording.number(e), wording.number(f), wording.number(c))
        for e, f, c in zip(epsilons, forward, central, strict=True)
    )
    yield Figure(
        "differences",
        "Gradient against finite differences, by step",
        "The difference falls with the step until rounding takes over. Central differences come closest, to "
        f"{wording.number(central[best])}, at a step of {wording.number(epsilons[best])}.",
        partial(check_plots.draw_difference_curve, DifferenceCurve(epsilons, forward, central)),
        Table("Numbers", ("step", "forward", "central"), rows, (0, 1, 2)),
        height=280,
    )


def gradient_figures(plain: Plain) -> Iterator[Figure]:
    """The error of finite differences by step, and the gradient's error by parameter."""
    yield from _difference_figures(plain)
    leaves = [leaf for leaf in rows_of(plain.get("leaves")) if math.isfinite(as_number(leaf.get("error")))]
    if not leaves:
        return
    leaves = sorted(leaves, key=lambda leaf: (not leaf.get("wrong"), -as_number(leaf.get("error"))))
    dots = [Dot(str(leaf.get("name")), as_number(leaf.get("error")), marked=bool(leaf.get("wrong"))) for leaf in leaves]
    wrong, turned = sum(dot.marked for dot in dots), [leaf for leaf in leaves if _is_turned(leaf)]
    rows: tuple[Row, ...] = tuple(
        (
            str(leaf.get("name")),
            wording.number(as_number(leaf.get("error"))),
            wording.whole(as_number(leaf.get("looked_at"))),
            wording.whole(as_number(leaf.get("wrong") or 0)),
            "wrong sign" if leaf in turned else "wrong" if leaf.get("wrong") else "right",
        )
        for leaf in leaves
    )
    said = (
        f"{wrong} of {len(dots)} parameters have a wrong gradient (diamonds)"
        + (f", {len(turned)} of them with the wrong sign." if turned else ".")
        if wrong
        else f"All {len(dots)} agree; the largest difference is {wording.number(dots[0].value)}."
    )
    header = ("parameter", "largest error", "entries looked at", "wrong", "")
    look = {"across": "relative error of the gradient"}
    table = Table("Numbers", header, rows, (1, 2, 3))
    yield dots_figure("gradient-errors", "The gradient's error by parameter", said, dots, table, **look)


# --- learning


def overfit_figures(plain: Plain) -> Iterator[Figure]:
    """Whether a handful of examples can be learned by heart."""
    curves = array(plain.get("curves"))
    curves = curves[None] if curves.ndim == 1 and len(curves) else curves
    if curves.ndim != 2 or curves.shape[1] < 2 or not np.isfinite(curves).any():
        return
    starts, ends = array(plain.get("starts")), array(plain.get("ends"))
    count = wording.whole(as_number(plain.get("examples")))
    lowest = float(np.nanmin(curves))
    how = "learned by heart" if plain.get("learned") else "not learned by heart"
    rows: tuple[Row, ...] = tuple(
        (str(i + 1), wording.number(start), wording.number(end))
        for i, (start, end) in enumerate(zip(starts, ends, strict=False))
    )
    yield Figure(
        "overfit",
        "A handful of examples, learned by L-BFGS",
        f"{count} examples are {how}: the loss goes from {wording.number(float(np.nanmax(curves[:, 0])))} to "
        f"{wording.number(lowest)}. Each line is a start of its own.",
        partial(check_plots.draw_falling, list(curves), across="steps of L-BFGS"),
        Table("Numbers", ("start", "loss before", "loss after"), rows, (1, 2)),
    )


def start_figures(plain: Plain) -> Iterator[Figure]:
    """The loss over the first updates of the user's own training."""
    losses = array(plain.get("losses"))
    if losses.ndim != 1 or len(losses) < 3 or not np.isfinite(losses).any():
        return
    sound = losses[np.isfinite(losses)]
    chance = as_number(plain.get("constant"))
    beside = f" A prediction that knows nothing has {wording.number(chance)}." if math.isfinite(chance) else ""
    rows: tuple[Row, ...] = tuple(
        (str(i), wording.number(float(losses[i])))
        for i in np.unique(np.linspace(0, len(losses) - 1, 11).round().astype(int))
    )
    yield Figure(
        "rehearsal",
        "The first updates of your own training",
        f"The loss goes from {wording.number(float(sound[0]))} to {wording.number(float(sound[-1]))} in {len(losses)} "
        f"updates.{beside}",
        partial(check_plots.draw_falling, [losses]),
        Table("Numbers", ("update", "loss"), rows, (0, 1)),
    )


def growth_figures(plain: Plain) -> Iterator[Figure]:
    """Training and validation error against the number of examples, and what twice as many would give."""
    counts, train, valid = (array(plain.get(name)) for name in ("counts", "train", "valid"))
    if len(counts) < 2 or len(train) != len(counts) or len(valid) != len(counts):
        return
    train, valid = (part.reshape(len(counts), -1) for part in (train, valid))
    means = [part.mean(axis=1) for part in (train, valid)]
    if not all(np.isfinite(mean).all() for mean in means):
        return
    seeds = train.shape[1]
    spreads = [part.std(axis=1, ddof=1) / math.sqrt(seeds) if seeds > 1 else 0 * counts for part in (train, valid)]
    noise = array(plain.get("noise"))
    if len(noise) == len(counts):
        spreads[1] = np.hypot(spreads[1], np.nan_to_num(noise))
    law, predicted = array(plain.get("law")), as_number(plain.get("predicted"))
    fitted = (float(law[0]), float(law[1]), float(law[2])) if len(law) == 3 and np.isfinite(law).all() else None
    metric = str(plain.get("metric") or "error")
    share = metric in ("error", "error_rate")
    write = wording.percent if share else wording.number
    low, high = ((*array(plain.get("interval")).tolist(), math.nan, math.nan))[:2]
    within = (
        f" (90\u202f% interval {write(low)} to {write(high)})" if math.isfinite(low) and math.isfinite(high) else ""
    )
    said = f"Validation goes from {write(float(means[1][0]))} to {write(float(means[1][-1]))}."
    if fitted and math.isfinite(predicted):
        said += f" Twice the examples would give {write(predicted)}{within}, by a power law through the curve (dotted)."
    rows: tuple[Row, ...] = tuple(
        (wording.whole(n), write(float(t)), write(float(v))) for n, t, v in zip(counts, *means, strict=True)
    )
    data = GrowthCurve(counts, means[0], means[1], spreads[0], spreads[1], fitted, predicted)
    name = "error" if share else wording.metric_name(metric)
    yield Figure(
        "growth",
        "Error against the number of examples",
        said,
        partial(check_plots.draw_growth, data, share=share, name=name),
        Table("Numbers", ("examples", "training", "validation"), rows, (0, 1, 2)),
        height=280,
    )


# --- rates


def _ladder_figures(plain: Plain) -> Iterator[Figure]:
    factors, losses = array(plain.get("factors")), array(plain.get("losses"))
    if len(factors) < 3 or len(losses) != len(factors):
        return
    ends = losses.reshape(len(factors), -1)[:, -1]
    moving = factors > 0
    still = ends[~moving]
    # Ending above the loss of no training at all is as bad as ending nowhere.
    worse = (
        np.isfinite(ends) & (ends > 2 * np.nanmax(np.abs(still)))
        if np.isfinite(still).any()
        else np.zeros(len(ends), bool)
    )
    sound = np.isfinite(ends) & ~worse & moving
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
    yield Figure(
        "ladder",
        "The loss against the learning rate",
        said,
        partial(
            check_plots.draw_ladder,
            (factors[moving], np.where(sound, ends, np.nan)[moving]),
            largest=largest if bounded else math.nan,
        ),
        Table("Numbers", ("times yours", "loss"), rows, (0, 1)),
        height=280,
    )


def learning_rate_figures(plain: Plain) -> Iterator[Block]:
    """The ladder of rates, the size of updates by parameter, and what bounds rate and batch."""
    yield from _ladder_figures(plain)
    names, ratios = [str(name) for name in plain.get("names") or ()], array(plain.get("ratios"))
    judged = [(n, float(r)) for n, r in zip(names, ratios, strict=False) if np.ndim(r) == 0 and math.isfinite(r)]
    if judged:
        judged.sort(key=lambda pair: -abs(math.log10(max(pair[1], 1e-30) / _SOUND_RATIO)))
        dots = [Dot(name, ratio, marked=not 1e-5 < ratio < 0.1) for name, ratio in judged]
        middle = float(np.median([ratio for _, ratio in judged]))
        rows: tuple[Row, ...] = tuple((name, wording.number(ratio)) for name, ratio in judged)
        yield dots_figure(
            "ratios",
            "The size of updates against that of weights",
            f"About 1 in 1,000 is the rule of thumb; here the median is {wording.number(middle)}. The parameters "
            "farthest from it come first.",
            dots,
            Table("Numbers", ("parameter", "update / weights"), rows, (1,)),
            across="update / weights",
            line=_SOUND_RATIO,
            told="1/1,000",
        )
    if table := _rate_table(plain):
        yield table


def _rate_table(plain: Plain) -> Table | None:
    facts: list[tuple[str, str]] = []
    eigenvalue, rate, limit = (as_number(plain.get(name)) for name in ("eigenvalue", "rate", "limit"))
    if math.isfinite(eigenvalue):
        facts.append(("largest eigenvalue of the Hessian", wording.number(eigenvalue)))
    if math.isfinite(limit):
        facts.append(("largest rate of plain gradient descent, 2 / eigenvalue", wording.number(limit)))
    if math.isfinite(rate):
        facts.append(("your learning rate", wording.number(rate)))
    noise = part_of(plain, "noise")
    if math.isfinite(as_number(noise.get("value"))):
        low, high = as_number(noise.get("low")), as_number(noise.get("high"))
        ends = f" ({wording.number(low)} to {wording.number(high)})" if math.isfinite(low) else ""
        facts.append(("gradient noise scale, in examples", f"{wording.number(as_number(noise['value']))}{ends}"))
    if math.isfinite(as_number(plain.get("size"))):
        facts.append(("your mini-batch size", wording.whole(as_number(plain["size"]))))
    return Table("Curvature and noise", ("", ""), tuple(facts), (1,)) if facts else None


# --- data


def data_figures(plain: Plain) -> Iterator[Block]:
    """The balance of classes, and what was found of leaks and duplicates."""
    parts = {
        str(part): dict(counts) for part, counts in part_of(plain, "counts").items() if isinstance(counts, Mapping)
    }
    train = parts.get("train") or next(iter(parts.values()), {})
    if train:
        ordered = sorted(train.items(), key=lambda pair: -as_number(pair[1]))
        shown = ordered[:SHOWN]
        rows: tuple[Row, ...] = tuple(
            (name, *(wording.whole(as_number(part.get(name, 0))) for part in parts.values()))
            for name, _ in ordered[:200]
        )
        often, seldom = as_number(ordered[0][1]), as_number(ordered[-1][1])
        times = f", {wording.number(often / seldom)} times as many as the rarest" if seldom > 0 else ""
        more = f" The {SHOWN} commonest of {len(ordered)}." if len(ordered) > SHOWN else ""
        yield Figure(
            "classes",
            "Examples by class",
            f"The commonest class has {wording.whole(often)} training examples{times}.{more}",
            partial(check_plots.draw_counts, [int(as_number(n)) for _, n in shown], names=[name for name, _ in shown]),
            Table("Numbers", ("class", *parts), rows, tuple(range(1, len(parts) + 1))),
            height=60 + 22 * len(shown),
            margins=(left_of(wording.short(name, 18) for name, _ in shown), 40, 14, 8),
        )
    if table := _leak_table(plain):
        yield table


def _leak_table(plain: Plain) -> Table | None:
    facts: list[Row] = []

    def add(what: str, told: str, wrong: bool = False) -> None:
        facts.append((what, Cell(told, strong=True) if wrong else told))

    for one in rows_of(plain.get("overlaps")):
        part, rows, copied = (
            str(one.get("part")),
            as_number(one.get("rows")),
            as_number(one.get("copied", one.get("exact"))),
        )
        expected = as_number(one.get("expected"))
        more = f"; {wording.whole(expected)} by chance" if expected >= 1 else ""
        share = copied / rows if rows else 0.0
        title = {"train": "training rows that repeat another"}.get(part, f"rows of {part} that stand in training")
        add(title, f"{wording.whole(copied)} of {wording.whole(rows)}{more}", copied > 2 * expected and share > 0.01)
    for part, pair in part_of(plain, "shared").items():
        if array(pair).shape == (2,) and pair[0]:
            add(f"groups of {part} that training shares", f"{wording.whole(as_number(pair[0]))}", True)
    columns = part_of(plain, "columns")
    if columns.get("constant"):
        add("constant inputs", wording.whole(len(columns["constant"])))
    giving, signal = part_of(plain, "giving"), part_of(plain, "signal")
    if math.isfinite(as_number(giving.get("score"))):
        add("score of the best single input", wording.percent(as_number(giving["score"])), bool(giving.get("exact")))
    if math.isfinite(as_number(signal.get("conflicting"))):
        add("examples whose inputs occur with another class", wording.percent(as_number(signal["conflicting"])))
        add("labels that nearly all neighbours deny", wording.percent(as_number(signal.get("denied"))))
    for one in rows_of(plain.get("elsewhere")):
        area = as_number(one.get("area"))
        add(f"how well {one.get('part')} is told from training (0.5: not at all)", wording.number(area), area > 0.8)
    return Table("What was looked for", ("", "found"), tuple(facts), (1,)) if facts else None


# --- choices


def choice_blocks(plain: Plain) -> Iterator[Block]:
    """What the outputs and the loss were recognised as."""
    kinds = {
        "softmax": "cross-entropy of a softmax",
        "logistic": "cross-entropy of sigmoids",
        "squared": "squared error",
    }
    said = []
    if plain.get("kind"):
        said.append(f"The loss was recognised as the {kinds.get(str(plain['kind']), str(plain['kind']))}.")
    penalty, rest = as_number(plain.get("penalty")), as_number(plain.get("rest"))
    if penalty > 0 and math.isfinite(rest):
        said.append(f"Its penalty is {wording.number(penalty)}, beside {wording.number(rest)} of the rest.")
    if said:
        yield Prose(" ".join(said))
