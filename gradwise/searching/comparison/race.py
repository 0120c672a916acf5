"""When batch methods overtake stochastic gradient descent on these data (row H9): by loss and error, time and examples.

    found = race(recipe, (Lbfgs(), HessianFree()), data, seconds=5.0)
    found.sentence, found.overtakings[0].at

The recipe's own optimiser takes its mini-batches, each batch method all training examples at every update. With the
same seed they start at the same weights, and every training lasts as long. Learning rates are chosen by another seed.
The clock runs during updates alone: neither compiling nor looking counts. A batch method's examples are counted once
for each update, although line searches and solves pass over them several times: that shows in the seconds.
"""

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from ...curvature.objective import Examples
from ...evaluation.break_even import overtaking, running_minimum
from ...records.score_scale import ScoreScale
from ...records.study_analysis import BreakEven, Overtaking, RaceLine
from ...records.trial import Trial
from ...runtime import keys
from ...runtime.errors import RequestError
from ...runtime.line_search_state import stalled
from ...runtime.progress import silent
from ...specs.contracts import AbstractOptimiser
from ...specs.paths import get, knobs, replace
from ...specs.recipe import Recipe
from ...training.interval import advance, evaluate, judged_model
from ...training.population import enter
from ...training.state import Problem, State
from ..running.evaluation_data import EvaluationData
from .seeds import Stop

_RATE_STEP = math.sqrt(10.0)
_RUNS_TO_TUNE = 6  # about: three rates a decade apart, then the neighbours of the best
_MOST_TUNING = 12
_LOOKS_AN_EPOCH = 8  # of a stochastic method, at first
_GROWTH = 1.15  # the ratio of the ages of looks


@dataclass(frozen=True)
class Entrant:
    """A method: its name, its recipe, and where its learning rate stands, if it has one."""

    name: str
    recipe: Recipe
    rate_path: str | None

    @property
    def rate(self) -> float:
        return math.nan if self.rate_path is None else float(get(self.recipe, self.rate_path))

    def at_rate(self, rate: float) -> "Entrant":
        assert self.rate_path is not None
        return dataclasses.replace(self, recipe=replace(self.recipe, self.rate_path, rate))


def _rate_path(optimiser: AbstractOptimiser) -> str | None:
    return next((path for path, _, _ in knobs(optimiser) if path.endswith("learning_rate")), None)


def runs_of(recipe: Recipe, methods: Sequence[AbstractOptimiser], seeds: int) -> int:
    """About how many trainings a race has."""
    several = (recipe.optimiser, *methods)
    return seeds * len(several) + _RUNS_TO_TUNE * sum(_rate_path(one) is not None for one in several)


def _entrant(name: str, recipe: Recipe) -> Entrant:
    path = _rate_path(recipe.optimiser)
    return Entrant(name, recipe, None if path is None else f"optimiser.{path}")


def _name(optimiser: AbstractOptimiser) -> str:
    """The optimiser's class, and what it wraps: `MovingAverage(Adam)`."""
    inner = getattr(optimiser, "optimiser", None)
    own = type(optimiser).__name__
    return f"{own}({_name(inner)})" if isinstance(inner, AbstractOptimiser) else own


def entrants(recipe: Recipe, methods: Sequence[AbstractOptimiser], rows: int) -> list[Entrant]:
    """The recipe, then each batch method with all rows in each batch."""
    if not methods:
        raise RequestError("give at least one batch method, such as Lbfgs.")
    if recipe.batches.size >= rows:
        raise RequestError(
            f"a mini-batch of {recipe.batches.size} holds all {rows} training examples, so nothing is stochastic. Set "
            "batches.size to a smaller number."
        )
    own = _name(recipe.optimiser)
    found = [_entrant(own, recipe)]
    for method in methods:
        whole = replace(dataclasses.replace(recipe, optimiser=method), "batches.size", rows)
        name = f"full-batch {_name(method)}" if _name(method) == own else _name(method)
        if any(one.name == name for one in found):
            raise RequestError(f"{name} is given twice: each batch method races once.")
        found.append(_entrant(name, whole))
    return found


@eqx.filter_jit(donate="all-except-first")
def _advance(fixed: tuple[Problem, int, Int[Array, ""]], state: State) -> tuple[State, Bool[Array, ""]]:
    problem, updates, turns = fixed

    def turn(_: Any, carry: tuple[State, Bool[Array, ""]]) -> tuple[State, Bool[Array, ""]]:
        state, seen = advance(problem, carry[0], updates)
        return state, carry[1] | (seen["diverged_examples"] >= 0)

    found: tuple[State, Bool[Array, ""]] = jax.lax.fori_loop(0, turns, turn, (state, jnp.zeros((), bool)))
    return found


@eqx.filter_jit
def _look(problem: Problem, state: State) -> dict[str, Array]:
    model = judged_model(problem, state)
    valid, train = evaluate(problem, model), evaluate(dataclasses.replace(problem, valid=problem.train), model)
    return {
        "valid_score": jnp.mean(valid.score),
        "valid_loss": jnp.mean(valid.loss),
        "train_loss": jnp.mean(train.loss),
        "stalled": stalled(state.optimiser),
    }


def _looks() -> Iterator[int]:
    """Turns after which to look: each one at first, then ever fewer."""
    turn = 0
    while True:
        turn = max(turn + 1, math.ceil(turn * _GROWTH))
        yield turn


@dataclass(frozen=True)
class _Run:
    """One training: its curve, how it ended, and the size of its network."""

    entrant: Entrant
    seed: int
    curve: dict[str, list[float]]
    outcome: str
    parameters: int

    @property
    def rank(self) -> tuple[float, float]:
        """The best validation score, then the best training loss."""
        score, loss = (float(running_minimum(self.curve[name])[-1]) for name in ("valid_score", "train_loss"))
        return score, loss


@dataclass(frozen=True)
class _Track:
    """What all runs share."""

    data: EvaluationData
    train: Examples
    valid: Examples
    seconds: float
    stop: Stop

    def run(self, entrant: Entrant, seed: int) -> _Run:
        """Trains until the time is over, the recipe's longest run is, or the method has come to its end."""
        key = keys.of_trial(self.data.key, seed)
        outputs = self.data.task.outputs
        member, state = enter(entrant.recipe, self.train, self.valid, outputs=outputs, key=key)
        problem = dataclasses.replace(member.problem(self.train, self.valid), last=None)
        last, an_epoch = int(member.last), problem.updates_per_epoch
        quantum = max(1, min(last, an_epoch // _LOOKS_AN_EPOCH))
        state, _ = _advance((problem, quantum, jnp.zeros((), jnp.int32)), state)  # compiles
        names = ("updates", "age_examples", "seconds", "valid_score", "valid_loss", "train_loss")
        curve: dict[str, list[float]] = {name: [] for name in names}
        seconds, done, outcome, bad = 0.0, 0, "finished", False
        for coming in itertools.chain([0], _looks()):
            turns = min(coming, last // quantum) - done
            if coming:
                begun = time.perf_counter()
                state, diverged = _advance((problem, quantum, jnp.asarray(turns, jnp.int32)), state)
                bad = bool(diverged)
                seconds += time.perf_counter() - begun
            done += turns
            seen = {name: float(value) for name, value in _look(problem, state).items()}
            updates = done * quantum
            epochs, part = divmod(updates, an_epoch)
            age = epochs * len(self.train) + part * problem.batch_size  # the last batch of an epoch may be short
            seen |= {"updates": updates, "age_examples": age, "seconds": seconds}
            for name, column in curve.items():
                column.append(seen[name])
            ended = {"diverged": bad or not math.isfinite(seen["train_loss"]), "stalled": bool(seen["stalled"])}
            outcome = next((name for name, true in ended.items() if true), "finished")
            if outcome != "finished" or done >= last // quantum or seconds >= self.seconds or self.stop():
                break
        return _Run(entrant, seed, curve, outcome, sum(leaf.size for leaf in jax.tree.leaves(state.parameters)))

    def tuned(self, entrant: Entrant, seed: int) -> tuple[Entrant, list[_Run]]:
        """The method at its best learning rate of a ladder, with the runs that found it."""
        if entrant.rate_path is None:
            return entrant, []
        tried: dict[int, _Run] = {}
        coming = [-2, 0, 2]
        while coming and len(tried) < _MOST_TUNING and not (tried and self.stop()):
            for step in coming:
                tried[step] = self.run(entrant.at_rate(entrant.rate * _RATE_STEP**step), seed)
            best = min(tried, key=lambda step: (tried[step].outcome == "diverged", tried[step].rank, step))
            coming = [step for step in (best - 1, best + 1) if step not in tried]
        return tried[best].entrant, list(tried.values())


def _line(run: _Run) -> RaceLine:
    curve = run.curve
    return RaceLine(
        method=run.entrant.name,
        size=int(run.entrant.recipe.batches.size),
        rate=run.entrant.rate,
        seed=run.seed,
        updates=tuple(int(n) for n in curve["updates"]),
        examples=tuple(int(n) for n in curve["age_examples"]),
        seconds=tuple(curve["seconds"]),
        loss=tuple(running_minimum(curve["train_loss"]).tolist()),
        error=tuple(running_minimum(curve["valid_score"]).tolist()),
        stays=run.outcome in {"stalled", "diverged"},
    )


def _median(values: Sequence[float]) -> float:
    """The median, which is infinite where the upper one of two is: half of the seeds are no majority."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if len(ordered) % 2 else float(np.mean(ordered[len(ordered) // 2 - 1 :][:2]))


def find_overtaking(stochastic: Sequence[RaceLine], batch: Sequence[RaceLine], measure: str, clock: str) -> Overtaking:
    """When the batch method overtakes, seed by seed; the lines are in the order of the seeds."""
    ends = []
    for one, other in zip(stochastic, batch, strict=True):
        lines = [(getattr(line, clock), getattr(line, measure)) for line in (one, other)]
        ends.append(overtaking(lines[0], lines[1], stays=(one.stays, other.stays)))
    at, until = _median([moment for moment, _ in ends]), _median([end for _, end in ends])

    def there(lines: Sequence[RaceLine], name: str) -> float:
        if not math.isfinite(at):
            return math.nan
        return float(np.median([np.interp(at, getattr(line, clock), getattr(line, name)) for line in lines]))

    return Overtaking(
        method=batch[0].method,
        measure=measure,
        clock=clock,
        at=at,
        until=until,
        level=there(batch, measure),
        updates=(there(stochastic, "updates"), there(batch, "updates")),
        examples=there(stochastic, "examples"),
        seeds=sum(math.isfinite(moment) for moment, _ in ends),
    )


def _seconds(value: float) -> str:
    return f"{1000 * value:.3g} ms" if value < 1 else f"{value:.3g} s"


def _told(one: Overtaking, stochastic: str, seeds: int) -> str:
    """One batch method by one measure, on the clock of seconds."""
    count = f"{one.seeds} of {seeds} seeds"
    if not math.isfinite(one.at):
        some = f" (with {count} it does)" if one.seeds else ""
        return f"{one.method} does not overtake {stochastic} within {_seconds(one.until)}{some}"
    if one.at == 0:
        return f"{one.method} leads from its first update ({count})"
    return (
        f"{one.method} overtakes {stochastic} after {_seconds(one.at)}, when it has made {one.updates[1]:,.0f} updates "
        f"and {stochastic} {one.updates[0]:,.0f}, on {one.examples:,.0f} examples ({count})"
    )


def _sentence(found: Sequence[Overtaking], stochastic: str, seeds: int, scale: ScoreScale) -> str:
    names = {"error": scale.name, "loss": "training loss"}
    by_time = [one for one in found if one.clock == "seconds"]
    said = [
        f"by {name}, {', '.join(_told(one, stochastic, seeds) for one in by_time if one.measure == measure)}"
        for measure, name in names.items()
    ]
    return f"{'; '.join(said)}."


def _trial(number: int, run: _Run, phase: str) -> Trial:
    recipe, curve = run.entrant.recipe, run.curve
    rate: dict[str, Any] = {} if run.entrant.rate_path is None else {run.entrant.rate_path: run.entrant.rate}
    scores = np.asarray(curve["valid_score"])
    known = np.isfinite(scores)
    best = int(np.where(known, scores, np.inf).argmin())
    return Trial(
        number=number,
        recipe=recipe,
        values={"optimiser": run.entrant.name, "batches.size": int(recipe.batches.size), **rate},
        outcome=run.outcome,
        score=float(scores[best]) if known.any() else math.nan,
        loss=curve["valid_loss"][best],
        train_loss=curve["train_loss"][best],
        age_examples=int(curve["age_examples"][-1]),
        best_age=int(curve["age_examples"][best]),
        seconds=curve["seconds"][-1],
        parameters=run.parameters,
        curve=curve,
        phase=phase,
    )


def race(
    recipe: Recipe,
    methods: Sequence[AbstractOptimiser],
    data: EvaluationData,
    *,
    seconds: float,
    seeds: int = 3,
    stop: Stop = lambda: False,
    watch: Callable[[str], None] = silent,
) -> BreakEven:
    """Trains with the recipe's optimiser and with each batch method, `seconds` each, with as many seeds.

    Trainings run one after another in this process, since they are timed. `watch` hears of each before it begins.
    """
    if seeds < 1:
        raise RequestError(f"a race needs at least one seed; got {seeds}.")
    several = entrants(recipe, methods, len(data.train))
    track = _Track(data, *data.place(recipe.scaler, slots=data.slots(recipe)), seconds, stop)
    tuning: list[_Run] = []
    for place, entrant in enumerate(several):
        if entrant.rate_path is not None:
            watch(f"learning rate of {entrant.name}")
        several[place], tried = track.tuned(entrant, 0)
        tuning += tried
    runs: list[list[_Run]] = []
    for seed in range(1, seeds + 1):
        these = []
        for entrant in several:
            watch(f"{entrant.name}, seed {seed} of {seeds}")
            these.append(track.run(entrant, seed))
        if stop() and runs:
            break  # this seed was cut short
        runs.append(these)
    lines = [[_line(run) for run in column] for column in zip(*runs, strict=True)]
    own = several[0].name
    found = tuple(
        find_overtaking(lines[0], column, measure, clock)
        for measure in ("error", "loss")
        for column in lines[1:]
        for clock in ("seconds", "examples")
    )
    told = [*((run, "tune") for run in tuning), *((run, "race") for these in runs for run in these)]
    trials = tuple(_trial(number, run, phase) for number, (run, phase) in enumerate(told))
    sentence = _sentence(found, own, len(runs), data.scale(recipe))
    names = tuple(entrant.name for entrant in several[1:])
    return BreakEven(own, names, tuple(line for column in lines for line in column), found, sentence, trials)
