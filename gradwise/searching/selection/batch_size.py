"""The mini-batch size, chosen last and apart, on curves against time (rows B4, C5).

    with LocalExecutor(data) as executor:
        found = compare_batch_sizes(recipe, data, executor)
    found.recommended, found.rate, found.sentence
    retune(recipe, found.recommended, most=rows)  a small grid over B and the rate together

B changes how long training takes more than where it ends, so it is chosen by the time to a common validation score.
At another B the recipe keeps what it meant: memories (momentum, moments, averages) and ages written in updates last as
many *examples* as before, and a small ladder of learning rates is tried, since B and the rate go together.

Time is updates times the seconds of one update of one network alone, measured in this process; validation, compilation
and other jobs do not count. So the jobs may run in any executor, beside any others.
"""

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import numpy as np

from ...evaluation.trials.batch_size_curve import BatchCurve, best_batch_size
from ...optimisers.adaptive.adam import Adam, AdamW, RmsProp
from ...optimisers.averaging.parameter_average import MovingAverage
from ...optimisers.first_order.sgd import HeavyBall, Nesterov, Sgd
from ...records.score_scale import ScoreScale
from ...records.study_analysis import BatchSizeCost, BatchSizes
from ...records.trial import Proposal, Trial
from ...runtime import keys
from ...runtime.errors import RequestError
from ...specs.paths import get, knobs, parts, replace
from ...specs.recipe import Recipe
from ...training.interval import advance
from ...training.population import enter
from ..comparison.seeds import Stop
from ..running.evaluation_data import EvaluationData
from ..running.executors import AbstractExecutor
from ..running.jobs import Done, Job
from ..running.run_jobs import as_trial, run_jobs
from .knob_kinds import refuse_capacity

SIZES = (8, 16, 32, 64, 128, 256)
RATES = (0.5, 1.0, 2.0)
_PLACES = 64  # numbers that one trial's trainings may take, as everywhere in a study
_LEAST_GAIN = 1.25  # the factor in time that counts where there is one seed, and so no measure of noise
_TIMED_EXAMPLES = 4096
# Knobs that say how much of the past is kept at each update.
_MEMORIES: dict[type, tuple[str, ...]] = {
    HeavyBall: ("momentum",),
    Nesterov: ("momentum",),
    Adam: ("first_moment", "second_moment"),
    AdamW: ("first_moment", "second_moment"),
    RmsProp: ("second_moment",),
    MovingAverage: ("decay",),
}


def rate_path(recipe: Recipe) -> str:
    """Where the (first) learning rate stands."""
    for path, _, _ in knobs(recipe):
        if path.startswith("optimiser.") and path.endswith("learning_rate"):
            return path
    raise RequestError(
        "the mini-batch size cannot be chosen: the optimiser has no `learning_rate` to adapt. Use another optimiser."
    )


def _tied(recipe: Recipe, ratio: float) -> tuple[Recipe, dict[str, float]]:
    """Memories that last as many examples as before, and the factors on rates of steps that sum over such a memory."""
    factors: dict[str, float] = {}
    for path, part in parts(recipe):
        for name in _MEMORIES.get(type(part), ()):
            before = float(getattr(part, name))
            after = min(before**ratio, 1.0 - 1e-7)
            recipe = replace(recipe, f"{path}.{name}", after)
            if name == "momentum":  # the step is a sum over the memory: its length would change with it
                factors[f"{path}.learning_rate"] = (1.0 - after) / (1.0 - before)
        if type(part) is Sgd and float(part.smoothing) < 1.0:
            after = max(1.0 - (1.0 - float(part.smoothing)) ** ratio, 1e-7)
            recipe = replace(recipe, f"{path}.smoothing", after)
    return recipe, factors


def at_size(recipe: Recipe, size: int, factor: float = 1.0) -> Recipe:
    """The recipe at another batch size, its rate times `factor` times the root of the ratio of the sizes.

    The root lies between what plain gradient descent asks for (the ratio) and what small batches bear; the ladder of
    factors reaches both sides.
    """
    ratio = size / recipe.batches.size
    changed, factors = _tied(recipe, ratio)
    for path, declaration, value in knobs(recipe):
        if path.startswith("optimiser.") and path.endswith("learning_rate"):
            changed = replace(changed, path, float(value) * factor * math.sqrt(ratio) * factors.get(path, 1.0))
        elif path.endswith("_updates") and not declaration.static:
            least = declaration.allowed.ends()[0] if declaration.allowed else 0.0  # type: ignore[union-attr]
            changed = replace(changed, path, max(least, float(value) / ratio))
    return replace(changed, "batches.size", size)


def cut_to(recipe: Recipe, rows: int) -> Recipe:
    """The recipe with a batch of at most all rows, as training would cut it."""
    return replace(recipe, "batches.size", rows) if recipe.batches.size > rows else recipe


@dataclass(frozen=True)
class _Run:
    """One training of the study."""

    size: int
    factor: float
    job: Job


def _runs(recipe: Recipe, sizes: Sequence[int], rates: Sequence[float], seeds: int, first: int) -> list[_Run]:
    own = recipe.batches.size
    ordered = [own, *sorted({*sizes} - {own})]  # were time to run out, the present size would have been measured
    grid = [(size, rate, seed) for size in ordered for rate in rates for seed in range(seeds)]
    return [
        _Run(size, rate, Job((first + n) * _PLACES, at_size(recipe, size, rate), first + seed))
        for n, (size, rate, seed) in enumerate(grid)
    ]


def batch_size_jobs(
    recipe: Recipe, sizes: Sequence[int] = SIZES, rates: Sequence[float] = RATES, *, seeds: int = 2, first: int = 0
) -> list[Job]:
    """The trainings of the study: each size, the recipe's own among them, with each rate and each seed."""
    return [run.job for run in _runs(recipe, sizes, rates, seeds, first)]


def seconds_per_update(recipe: Recipe, data: EvaluationData) -> float:
    """How long one update takes for one network alone, here and now."""
    train, valid = data.place(recipe.scaler, slots=data.slots(recipe))
    outputs = data.train.task.outputs
    member, state = enter(recipe, train, valid, outputs=outputs, key=keys.of_trial(data.key, 0))
    updates = max(16, _TIMED_EXAMPLES // recipe.batches.size)
    run = eqx.filter_jit(lambda problem, state: advance(problem, state, updates)[0].update)
    problem, best = member.problem(train, valid), math.inf
    for _ in range(4):  # the first one compiles
        begun = time.perf_counter()
        jax.block_until_ready(run(problem, state))
        best = min(best, time.perf_counter() - begun)
    return best / updates


@dataclass(frozen=True)
class _Line:
    """One size at its best rate: seed by seed the logarithms of the seconds and examples to the target."""

    size: int
    factor: float
    seconds: np.ndarray
    examples: np.ndarray
    reached: bool


def _curve(run: _Run, done: Done | None, per_update: float, count: int) -> BatchCurve | None:
    """The run against time; none where it left no model."""
    if done is None or done.outcome in {"failed", "diverged", "out_of_time"} or not math.isfinite(done.score):
        return None
    ages = np.asarray(done.curve["age_examples"])
    seconds = ages / count * -(-count // run.size) * per_update
    return BatchCurve(run.size, seconds, ages, np.asarray(done.curve["valid_score"]))


def _lines(curves: dict[tuple[int, float], list[BatchCurve | None]]) -> tuple[list[_Line], float]:
    """Each size at the rate that is fastest to a common target, and the target."""
    usable = {place: [c for c in several if c is not None] for place, several in curves.items()}
    usable = {place: several for place, several in usable.items() if several}
    ends = {place: np.mean([np.nanmin(c.scores) for c in several]) for place, several in usable.items()}
    sizes = sorted({size for size, _ in usable})
    nearest = [min((p for p in usable if p[0] == size), key=lambda p: ends[p]) for size in sizes]
    target = best_batch_size([curve for place in nearest for curve in usable[place]]).target
    lines: dict[int, list[_Line]] = {}
    for (size, factor), several in usable.items():
        spent = [best_batch_size([curve], target) for curve in several]
        reached = 2 * sum(bool(one.reached[0]) for one in spent) >= len(curves[size, factor])
        seconds = np.log([one.seconds[0] for one in spent])
        examples = np.log([one.examples[0] for one in spent])
        lines.setdefault(size, []).append(_Line(size, factor, seconds, examples, reached))
    return [min(lines[size], key=lambda line: (not line.reached, line.seconds.mean())) for size in sizes], target


def _is_real(present: _Line, best: _Line, lines: Sequence[_Line]) -> bool:
    """Whether a gain in time is more than the noise between seeds, which all sizes together tell."""
    from scipy.stats import t

    gain = float(present.seconds.mean() - best.seconds.mean())
    freedom = sum(len(line.seconds) - 1 for line in lines)
    if freedom < 1:
        return gain > math.log(_LEAST_GAIN)
    variance = sum(float(line.seconds.var()) * len(line.seconds) for line in lines) / freedom
    error = math.sqrt(variance * (1 / len(present.seconds) + 1 / len(best.seconds)))
    return gain > float(t.ppf(0.95, freedom)) * error


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.2g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _verdict(lines: Sequence[_Line], present: int, target: float, scale: ScoreScale) -> tuple[_Line, str]:
    """The line to take, and the sentence that says why."""
    aim = f"{scale.name} of {scale.say(target)}"
    there = [line for line in lines if line.reached] or lines
    best = min(there, key=lambda line: float(line.seconds.mean()))
    own = next((line for line in lines if line.size == present), None)
    fast = f"{best.size} reaches a {aim} in {_time(math.exp(best.seconds.mean()))}"
    if best is own:
        return own, f"a batch size of {fast}, faster than the others, so it stays."
    if own is None or not own.reached:
        return best, f"a batch size of {fast}; the current {present} does not reach it."
    gain = math.exp(own.seconds.mean() - best.seconds.mean())
    if not _is_real(own, best, lines):
        return own, f"the batch size stays {present}: {fast}, {gain:.2g} times as fast, but within the noise."
    return best, f"a batch size of {fast}, {gain:.2g} times as fast as the current {present}."


def _trial(run: _Run, done: Done) -> Trial:
    job = dataclasses.replace(run.job, number=run.job.number // _PLACES)
    path = rate_path(run.job.recipe)
    values: dict[str, object] = {"batches.size": run.size, path: float(get(run.job.recipe, path))}
    return as_trial(dataclasses.replace(done, number=job.number), job, values, phase="size")


def _cost(line: _Line, recipe: Recipe) -> BatchSizeCost:
    there = at_size(recipe, line.size, line.factor)
    seconds, examples = (math.exp(float(column.mean())) for column in (line.seconds, line.examples))
    return BatchSizeCost(line.size, seconds, round(examples), line.reached, float(get(there, rate_path(there))))


def compare_batch_sizes(
    recipe: Recipe,
    data: EvaluationData,
    executor: AbstractExecutor,
    *,
    sizes: Sequence[int] = SIZES,
    rates: Sequence[float] = RATES,
    seeds: int = 2,
    first: int = 0,
    timed: Callable[[Recipe], float] | None = None,
    stop: Stop = lambda: False,
    watch: Callable[[int], None] = lambda done: None,
) -> BatchSizes:
    """The size that reaches a common validation score in the least time; the present one where the gain is noise.

    It takes (sizes x rates x seeds) trials with numbers from `first` on. `timed` gives the seconds of one update; by
    default they are measured, after the trainings. Hold-out judges, also where the study has folds. `watch` hears how
    many trainings have ended; those that `stop` cuts short are not compared.
    """
    count = len(data.train)
    rate_path(recipe)
    recipe = cut_to(recipe, count)
    present = recipe.batches.size
    runs = _runs(recipe, [size for size in sizes if size <= count], rates, seeds, first)
    refuse_capacity(data.judged_on, (run.job.recipe for run in runs))
    ended = itertools.count(1)
    done = run_jobs(executor, [run.job for run in runs], each=lambda _: watch(next(ended)), stop=stop)
    measure = timed or (lambda one: seconds_per_update(one, data))
    per_update = {size: measure(at_size(recipe, size)) for size in sorted({run.size for run in runs})}
    curves: dict[tuple[int, float], list[BatchCurve | None]] = {}
    for run in runs:
        curve = _curve(run, done.get(run.job.number), per_update[run.size], count)
        curves.setdefault((run.size, run.factor), []).append(curve)
    trials = tuple(_trial(run, done[run.job.number]) for run in runs if run.job.number in done)
    own = [done.get(run.job.number) for run in runs if run.size == present]
    cut = any(one is None or one.outcome == "out_of_time" for one in own)
    if cut or not any(curve for several in curves.values() for curve in several):
        why = "the time ran out before its own runs ended" if cut else "no run produced a curve to compare"
        said = f"the batch size stays {present}: {why}."
        return BatchSizes((), present, float(get(recipe, rate_path(recipe))), math.nan, said, trials=trials)
    lines, target = _lines(curves)
    chosen, sentence = _verdict(lines, present, target, data.scale(recipe))
    # Where the size stays, so does the rate: it was chosen by the score, which a faster one might not keep.
    factor = 1.0 if chosen.size == present else chosen.factor
    found = at_size(recipe, chosen.size, factor)
    rate = float(get(found, rate_path(found)))
    table = tuple(_cost(line, recipe) for line in lines)
    return BatchSizes(table, chosen.size, rate, target, sentence, factor, trials=trials)


def retune(recipe: Recipe, size: int, rates: Sequence[float] = RATES, *, most: int) -> list[Proposal]:
    """A small grid over the size and the rate together: half, once and twice the size, each with a ladder of rates.

    What differs least from the recipe comes first, should time run out. No size is above `most`, the training rows.
    """
    sizes = dict.fromkeys(one for one in (size, 2 * size, max(1, size // 2)) if one <= most)
    grid = sorted(((one, rate) for one in sizes for rate in rates), key=lambda at: (at[0] != size) + (at[1] != 1.0))
    return [Proposal(at_size(recipe, one, rate), phase="batch") for one, rate in grid]
