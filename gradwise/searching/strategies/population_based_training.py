"""Population-based training (row J8): knobs change during training, as poor members copy good ones.

    space = Space(recipe, (dimension(recipe, "optimiser.learning_rate", LogUniform(1e-4, 1.0)),))
    found = evolve(space, data, size=16, intervals=40)
    found.network, found.schedule

All members train side by side in one population, interval by interval. Periodically each of the worst quarter copies
the whole state (parameters, optimiser) of one of the best quarter, with its knobs slightly changed. The result is one
network and the schedule of knobs that produced it. Every draw depends on the key of the data, the interval and the
slot. `gradwise search --strategy pbt` runs whole studies of it: see `population_search.py`.

Only knobs that the running program reads can change; a switch would need another program and raises an error. A knob
that is read only at initialisation, such as the scale of the weights, is drawn for each member and then inherited.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from ...runtime import keys
from ...runtime.errors import RequestError
from ...specs.knobs import switch
from ...specs.paths import get
from ...specs.priors import Choice
from ...specs.recipe import Recipe
from ...specs.search_space import Dimension, Space
from ...training.checkpoint import Saved
from ...training.population import Member, Population, enter
from ...training.state import State, for_building
from ..running.cohort import written_out
from ..running.evaluation_data import EvaluationData
from ..selection.knob_kinds import refuse_capacity, space_recipes
from .contract import AbstractStrategy, History
from .random_search import random_point

_FACTOR = 1.2
_LEAST_MEMBERS = 4  # of which a quarter is one
_RESAMPLED = 0.25  # of the knobs of a copy are drawn anew instead


@dataclass(frozen=True)
class IntervalSnapshot:
    """One interval: each slot's score, loss and knobs, and the slot that its state went on from afterwards."""

    age_examples: int
    scores: tuple[float, ...]
    losses: tuple[float, ...]
    knobs: tuple[dict[str, float], ...]
    parents: tuple[int, ...]
    train_losses: tuple[float, ...] = ()


class BestSeen(NamedTuple):
    """The best network that a slot has held: its score and loss, and when and in which slot it was judged."""

    score: float = math.inf
    loss: float = math.inf
    interval: int = -1
    slot: int = -1

    @property
    def rank(self) -> tuple[float, float]:
        return self.score, self.loss


@dataclass(frozen=True)
class Evolved:
    """The best network seen, when and where, and the knobs along its line of ancestors, an entry for each interval.

    `network` is None where every member diverged.
    """

    network: Any = field(repr=False)
    score: float
    loss: float
    age_examples: int
    slot: int
    schedule: tuple[dict[str, float], ...]
    lineage: tuple[int, ...]  # the ancestors' slots, an entry for each interval
    history: tuple[IntervalSnapshot, ...] = field(repr=False)


class PopulationBasedTraining(AbstractStrategy):
    """Members that train side by side and copy one another. `search` runs it whole: it has no trials to propose."""

    members: int = switch(16, allowed="[4, inf)", row="J8", about="members of a population, if the budget is a time")
    intervals: int = switch(
        0,
        allowed="[0, inf)",
        row="J8",
        about="intervals between validations per member; 0: as many as the recipe has, or 40",
    )
    every: int = switch(2, allowed="[1, inf)", row="J8", about="intervals between copies")

    def ask(self, space: Space, history: History, count: int, *, key: Key[Array, ""]) -> NoReturn:
        raise RequestError("population-based training proposes no single trials: use it in a search.")


def perturbed(dimension: Dimension, value: float, random: np.random.Generator) -> float:
    """The value a little higher or lower, within its prior; now and then a new draw of the prior.

    A choice moves to a neighbouring value.
    """
    fraction, coin, place = random.random(3)  # always three, so that one knob's luck does not shift another's
    if fraction < _RESAMPLED:
        return float(dimension.at(place))
    up = coin < 0.5
    scale = dimension.scale
    if isinstance(scale, Choice):
        values = sorted(float(one) for one in scale.values)
        near = int(np.argmin([abs(one - value) for one in values]))
        return values[min(len(values) - 1, max(0, near + (1 if up else -1)))]
    changed = value * _FACTOR if up else value / _FACTOR
    return float(min(max(changed, scale.low), scale.high)) if value else 0.0  # type: ignore[attr-defined]


def can_change(dimension: Dimension) -> bool:
    """Whether a knob is a number to the program; others shape it."""
    return dimension.declaration is not None and not dimension.declaration.static


def check_population(space: Space, size: int, every: int = 1) -> None:
    """Refuses a space or a size that no population can have."""
    if not space.dimensions:
        raise RequestError("population-based training needs a knob that can change, but the space has no dimension.")
    for one in space.dimensions:
        if not can_change(one):
            raise RequestError(
                f"`{one.path}` changes the compiled program and cannot vary during training. Remove it from the space."
            )
    if size < _LEAST_MEMBERS:
        raise RequestError(f"population-based training needs at least {_LEAST_MEMBERS} members; got {size}.")
    if every < 1:
        raise RequestError(f"`every` must be at least 1; got {every}.")


class Evolution:
    """A population under way: `interval` trains it, `exploit` lets the worst copy the best."""

    def __init__(self, space: Space, data: EvaluationData, *, size: int, intervals: int, first: int = 0):
        self.space, self.data, self.first, self.size, self.intervals = space, data, first, size, intervals
        self.train, self.valid = data.place(space.recipe.scaler, slots=data.slots(space.recipe))
        points = [space.recipe_at(random_point(space, first + slot, data.key)) for slot in range(size)]
        self.knobs = [{path: float(get(recipe, path)) for path in space.paths} for recipe in points]
        entered = [self._enter(slot, recipe) for slot, recipe in enumerate(points)]
        self.changing = self._changing()
        self.population = Population(*entered[0], self.train, self.valid, slots=size)
        self.last = intervals * self.population.updates
        for slot, (member, state) in enumerate(entered):
            self._fill(slot, member, state)
        self.history: list[IntervalSnapshot] = []
        self.held = [BestSeen() for _ in range(size)]

    def _enter(self, slot: int, recipe: Recipe) -> tuple[Member, State]:
        """A network with the slot's own randomness; every knob of the space is a number to its program."""
        key = keys.of_trial(self.data.key, self.first + slot)
        judged = self.data.as_judged(recipe)
        within = judged is not recipe  # a probe around the criterion
        paths = [path.replace("criterion.", "criterion.criterion.", int(within)) for path in self.space.paths]
        # Written out last: telling schedules the length of the run makes the parts anew.
        recipe = written_out(for_building(judged, self.train), paths)
        return enter(recipe, self.train, self.valid, outputs=self.data.train.task.outputs, key=key)

    def _changing(self) -> tuple[str, ...]:
        """The knobs that a running program reads: those whose value makes another member, not only another start."""

        def numbers(path: str, place: float) -> list[np.ndarray]:
            values = {**self.knobs[0], path: float(self.space[path].at(place))}
            member, _ = self._enter(0, self.space.recipe_of(values))
            return [np.asarray(leaf) for leaf in jax.tree.leaves((member.recipe, member.rest)) if eqx.is_array(leaf)]

        def differs(path: str) -> bool:
            pairs = zip(numbers(path, 0.1), numbers(path, 0.9), strict=True)
            return any(not np.array_equal(one, other) for one, other in pairs)

        found = tuple(path for path in self.space.paths if differs(path))
        if not found:
            raise RequestError(
                f"`{self.space.paths[0]}` is only read at initialisation: population-based training needs a knob that "
                "can change during training, such as the learning rate."
            )
        return found

    def _fill(self, slot: int, member: Member, state: State) -> None:
        # The length is the evolution's, not the recipe's.
        member = eqx.tree_at(lambda m: m.last, member, jnp.asarray(self.last, jnp.int32))
        self.population.fill(slot, member, state)

    def interval(self) -> IntervalSnapshot:
        """One interval of every member."""
        rows = jax.device_get(self.population.interval())
        fine = (rows.diverged_examples < 0) & np.isfinite(rows.valid_loss)
        scores = np.where(fine, rows.valid_score, np.inf)
        losses = np.where(fine, rows.valid_loss, np.inf)
        for slot in np.flatnonzero(rows.best & fine).tolist():
            self.held[slot] = BestSeen(float(scores[slot]), float(losses[slot]), len(self.history), slot)
        moment = IntervalSnapshot(
            int(rows.age_examples.max()),
            tuple(scores.tolist()),
            tuple(losses.tolist()),
            tuple(dict(line) for line in self.knobs),
            tuple(range(len(scores))),
            tuple(rows.train_loss.tolist()),
        )
        self.history.append(moment)
        return moment

    def exploit(self) -> dict[int, int]:
        """Each of the worst quarter becomes a copy of one of the best quarter with changed knobs: who copied whom."""
        moment, number = self.history[-1], len(self.history) - 1
        order = sorted(range(len(moment.scores)), key=lambda n: (moment.scores[n], moment.losses[n], n))
        quarter = len(order) // 4
        leaders = [slot for slot in order[:quarter] if math.isfinite(moment.scores[slot])]
        if not leaders:
            return {}
        copied = {}
        for slot in order[-quarter:]:
            key = jr.fold_in(jr.fold_in(keys.named(self.data.key, "evolution"), number), self.first + slot)
            random = keys.generator(key)
            parent = leaders[int(random.integers(len(leaders)))]
            inherited = self.knobs[parent]
            changed = {path: perturbed(self.space[path], inherited[path], random) for path in self.space.paths}
            self.knobs[slot] = {path: (changed if path in self.changing else inherited)[path] for path in inherited}
            self._copy(slot, parent)
            copied[slot] = parent
        parents = tuple(copied.get(slot, slot) for slot in range(len(order)))
        self.history[-1] = replace(moment, parents=parents)
        return copied

    def _copy(self, slot: int, parent: int) -> None:
        """The parent's state into a slot, which keeps the best network that it has held if that is better."""
        member, _ = self._enter(slot, self.space.recipe_of(self.knobs[slot]))
        state = self.population.state_of(parent)
        if self.held[slot].rank < self.held[parent].rank:
            own = self.population.state_of(slot)
            state = eqx.tree_at(lambda s: (s.best, s.stopping), state, (own.best, own.stopping))
        else:
            self.held[slot] = self.held[parent]
        self._fill(slot, member, state)

    def to_saved(self, seconds: float = 0.0) -> Saved:
        """The population between two intervals: what `restore` goes on from."""
        told: dict[str, list[Any]] = {
            "history": [asdict(one) for one in self.history],
            "knobs": self.knobs,
            "held": list(self.held),
        }
        return Saved(self.population.states, told, seconds)

    def restore(self, saved: Saved) -> None:
        """Goes on from there, as if nothing had happened."""
        names = ("scores", "losses", "knobs", "parents", "train_losses")
        lines = [{**line, **{name: tuple(line[name]) for name in names}} for line in saved.history["history"]]
        self.history = [IntervalSnapshot(**line) for line in lines]
        self.knobs = [dict(line) for line in saved.history["knobs"]]
        self.held = [BestSeen(*line) for line in saved.history["held"]]
        for slot, knobs in enumerate(self.knobs):
            member, _ = self._enter(slot, self.space.recipe_of(knobs))
            self._fill(slot, member, self.population.state_of(slot))
        self.population.states = saved.state

    def lineage(self, interval: int, slot: int) -> tuple[int, ...]:
        """The slots in which the ancestors of this slot at this interval were, an entry for each interval."""
        found: list[int] = []
        for number in range(interval, -1, -1):
            found.insert(0, slot)
            slot = self.history[number - 1].parents[slot] if number else slot
        return tuple(found)

    def result(self) -> Evolved:
        """What has been found so far."""
        best = min(range(self.size), key=lambda slot: (*self.held[slot].rank, slot))
        score, loss, last, slot = self.held[best]
        if last < 0:
            return Evolved(None, score, loss, 0, slot, (), (), tuple(self.history))
        lineage = self.lineage(last, slot)
        schedule = tuple(
            {"age_examples": float(self.history[n].age_examples), **self.history[n].knobs[place]}
            for n, place in enumerate(lineage)
        )
        network = self.population.best(best)[0]
        age = self.history[last].age_examples
        return Evolved(network, score, loss, age, slot, schedule, lineage, tuple(self.history))


def evolve(
    space: Space,
    data: EvaluationData,
    *,
    size: int = 16,
    intervals: int = 40,
    every: int = 2,
    first: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> Evolved:
    """Population-based training of `size` networks for so many intervals, copying after every few of them.

    Early stopping decides how long an interval is and what it judges by, but ends no member. The members' first knobs
    and their randomness are those of a random search's trials with numbers from `first` on.
    """
    check_population(space, size, every)
    if intervals < 1:
        raise RequestError(f"`intervals` must be at least 1; got {intervals}.")
    refuse_capacity(data.judged_on, space_recipes(space))
    evolution = Evolution(space, data, size=size, intervals=intervals, first=first)
    for number in range(1, intervals + 1):
        evolution.interval()
        if number == intervals or stop():
            break
        if number % every == 0:
            evolution.exploit()
    return evolution.result()
