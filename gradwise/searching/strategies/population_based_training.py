"""Population-based training (row J8): knobs that change while networks train, by copying those that do well.

    space = Space(recipe, (dimension(recipe, "optimiser.learning_rate", LogUniform(1e-4, 1.0)),))
    found = evolve(space, data, size=16, intervals=40)
    found.network, found.schedule

All members train side by side in one population, interval by interval. Now and then each of the worst quarter takes
the whole state (parameters, optimiser) of one of the best quarter, and that one's knobs, changed a little. What comes
out is one network and the schedule of knobs that made it. Every draw depends on the key of the data, the interval and
the slot.

Only knobs that the running program reads can change: a switch would need another program, and is refused.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ...runtime import keys
from ...runtime.errors import RequestError
from ...specs.paths import get
from ...specs.priors import Choice
from ...specs.recipe import Recipe
from ...specs.search_space import Dimension, Space
from ...training.population import Member, Population, enter
from ...training.state import State
from ..running.cohort import written_out
from ..running.evaluation_data import EvaluationData
from ..selection.knob_kinds import refuse_capacity, space_recipes
from .random_search import random_point

_FACTOR = 1.2
_RESAMPLED = 0.25  # of the knobs of a copy are drawn anew instead


@dataclass(frozen=True)
class IntervalSnapshot:
    """One interval: each slot's score, loss and knobs, and the slot that its state went on from afterwards."""

    age_examples: int
    scores: tuple[float, ...]
    losses: tuple[float, ...]
    knobs: tuple[dict[str, float], ...]
    parents: tuple[int, ...]


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

    def plain(self) -> dict[str, Any]:
        return {
            "evolved": {
                "score": self.score,
                "loss": self.loss,
                "age_examples": self.age_examples,
                "schedule": [dict(line) for line in self.schedule],
                "lineage": list(self.lineage),
                "scores": [list(moment.scores) for moment in self.history],
                "parents": [list(moment.parents) for moment in self.history],
            }
        }


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


def _check(space: Space, size: int, intervals: int, every: int) -> None:
    if not space.dimensions:
        raise RequestError("population-based training needs a knob to change: the space has no dimension.")
    for one in space.dimensions:
        if one.declaration is None or one.declaration.static:
            raise RequestError(
                f"`{one.path}` shapes the program and cannot change while a network trains. Leave it out of the space."
            )
    if size < 4:
        raise RequestError(f"population-based training needs at least 4 members; got {size}.")
    if intervals < 1 or every < 1:
        raise RequestError(f"`intervals` and `every` must be at least 1; got {intervals} and {every}.")


class Evolution:
    """A population under way: `interval` trains it, `exploit` lets the worst copy the best."""

    def __init__(self, space: Space, data: EvaluationData, *, size: int, intervals: int, first: int = 0):
        self.space, self.data, self.first = space, data, first
        self.train, self.valid = data.place(space.recipe.scaler)
        points = [space.recipe_at(random_point(space, first + slot, data.key)) for slot in range(size)]
        self.knobs = [{path: float(get(recipe, path)) for path in space.paths} for recipe in points]
        entered = [self._enter(slot, recipe) for slot, recipe in enumerate(points)]
        self.population = Population(*entered[0], self.train, self.valid, slots=size)
        self.last = intervals * self.population.updates
        for slot, (member, state) in enumerate(entered):
            self._fill(slot, member, state)
        self.history: list[IntervalSnapshot] = []
        self.best: tuple[float, float, int, int] = (math.inf, math.inf, -1, -1)  # score, loss, interval, slot
        self.network: Any = None

    def _enter(self, slot: int, recipe: Recipe) -> tuple[Member, State]:
        """A network with the slot's own randomness; every knob of the space is a number to its program."""
        key = keys.of_trial(self.data.key, self.first + slot)
        recipe = written_out(recipe, self.space.paths)
        return enter(recipe, self.train, self.valid, outputs=self.data.train.task.outputs, key=key)

    def _fill(self, slot: int, member: Member, state: State) -> None:
        # The length is the evolution's, not the recipe's.
        member = eqx.tree_at(lambda m: m.last, member, jnp.asarray(self.last, jnp.int32))
        self.population.fill(slot, member, state)

    def state_of(self, slot: int) -> State:
        """A copy of a slot's state."""
        return jax.tree.map(lambda leaf: leaf[slot] if eqx.is_array(leaf) else leaf, self.population.states)

    def interval(self) -> IntervalSnapshot:
        """One interval of every member; the best network so far is kept aside."""
        rows = jax.device_get(self.population.interval())
        fine = (rows.diverged_examples < 0) & np.isfinite(rows.valid_loss)
        scores = np.where(fine, rows.valid_score, np.inf)
        losses = np.where(fine, rows.valid_loss, np.inf)
        slot = min(range(len(scores)), key=lambda n: (scores[n], losses[n], n))
        found = (float(scores[slot]), float(losses[slot]), len(self.history), slot)
        if found[:2] < self.best[:2]:
            # It is better than all its ancestors, so it is also what its own slot holds as the best.
            self.best, self.network = found, self.population.best(slot)[0]
        moment = IntervalSnapshot(
            int(rows.age_examples.max()),
            tuple(scores.tolist()),
            tuple(losses.tolist()),
            tuple(dict(line) for line in self.knobs),
            tuple(range(len(scores))),
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
            self.knobs[slot] = {
                path: perturbed(self.space[path], self.knobs[parent][path], random) for path in self.space.paths
            }
            member, _ = self._enter(slot, self.space.recipe_of(self.knobs[slot]))
            self._fill(slot, member, self.state_of(parent))
            copied[slot] = parent
        parents = tuple(copied.get(slot, slot) for slot in range(len(order)))
        self.history[-1] = IntervalSnapshot(moment.age_examples, moment.scores, moment.losses, moment.knobs, parents)
        return copied

    def result(self) -> Evolved:
        """What has been found so far."""
        score, loss, last, slot = self.best
        lineage: list[int] = []
        place = slot
        for number in range(last, -1, -1):
            lineage.insert(0, place)
            place = self.history[number - 1].parents[place] if number else place
        schedule = tuple(
            {"age_examples": float(self.history[n].age_examples), **self.history[n].knobs[place]}
            for n, place in enumerate(lineage)
        )
        age = self.history[last].age_examples if lineage else 0
        return Evolved(self.network, score, loss, age, slot, schedule, tuple(lineage), tuple(self.history))


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
    _check(space, size, intervals, every)
    refuse_capacity(data.judged_on, space_recipes(space))
    evolution = Evolution(space, data, size=size, intervals=intervals, first=first)
    for number in range(1, intervals + 1):
        evolution.interval()
        if number == intervals or stop():
            break
        if number % every == 0:
            evolution.exploit()
    return evolution.result()
