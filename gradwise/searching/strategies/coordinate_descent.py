"""Coordinate descent: one knob at a time around the best found so far, the learning rate most often (row E5).

    CoordinateDescent(values=6)      six values at once, which six workers can try side by side

The order of one round is rate, knob, rate, knob, rate, ...: what suits the rate changes with every other choice. In the
first round a knob's whole interval is tried; in each later visit an interval around the best, half as wide in each
round. The descent ends when a round brings nothing better, or when the intervals are as narrow as `finest`.

Nothing is remembered: the descent is walked again from its start with the scores that the history has, until a step
has values without a score.
"""

from dataclasses import dataclass, replace
from typing import Any

from jaxtyping import Array, Key

from ...records.trial import Proposal, Trial, best_of, better
from ...specs.knobs import switch
from ...specs.search_space import Dimension, Space, label
from .contract import AbstractStrategy, History
from .grid import Signature, busy_cells, is_rate, regular_values
from .random_search import chosen_values, learned_from, point_signature


def order_of_visits(space: Space) -> list[Dimension]:
    """One round: the learning rates before everything and again after every other knob."""
    rates = [d for d in space.dimensions if is_rate(d.path)]
    others = [d for d in space.dimensions if not is_rate(d.path)]
    return rates + [visited for other in others for visited in (other, *rates)]


def _stands_alone(space: Space, dimension: Dimension) -> bool:
    """Whether writing this dimension can change no other: none lies within it, around it, or in the same switch."""
    head, _, word = dimension.path.rpartition(".")
    own = head if word in {"count", "each"} or word.isdigit() else dimension.path
    others = [path for path in space.paths if path != dimension.path]
    return not any(f"{path}.".startswith(f"{own}.") or own.startswith(f"{path}.") for path in others)


@dataclass(frozen=True)
class _Centre:
    """The best found so far: its recipe and what it chose."""

    recipe: Any
    values: dict[str, Any]
    trial: Trial | None = None


class CoordinateDescent(AbstractStrategy):
    """One dimension at a time."""

    values: int = switch(4, allowed="[2, inf)", row="E5", about="values of one knob tried at once")
    finest: float = switch(
        0.01, allowed="(0, 1]", row="E5", about="the narrowest interval, to each side, as a fraction of the prior"
    )

    def _step(self, space: Space, dimension: Dimension, centre: _Centre, reach: float | None) -> dict[Signature, Any]:
        """The values of one step, by the signature they give; none where the knob is not active at the centre."""
        if dimension.path not in centre.values:
            return {}
        around = None if reach is None else centre.values[dimension.path]
        tried = regular_values(dimension, self.values, around, reach=reach or 1.0)
        if _stands_alone(
            space, dimension
        ):  # told without making the recipe: a long descent is walked at every question
            return {point_signature({**centre.values, dimension.path: label(value)}): value for value in tried}
        one = space.only([dimension.path], recipe=centre.recipe)
        return {point_signature(chosen_values(space, one.recipe_of({dimension.path: value}))): value for value in tried}

    def ask(self, space: Space, history: History, count: int, *, key: Key[Array, ""]) -> list[Proposal]:
        ended: dict[Signature, Trial] = {}
        for trial in learned_from(history):
            ended.setdefault(point_signature(trial.values), trial)
        busy = set(busy_cells(space, history))
        centre = _Centre(space.recipe, chosen_values(space, space.recipe))
        start = point_signature(centre.values)  # the recipe itself begins
        if start not in ended:
            return [] if start in busy else [Proposal(space.recipe)]
        if ended[start].ok:
            centre = replace(centre, trial=ended[start])

        reach, visited = 0.25, set()
        while reach >= self.finest:
            before = centre
            for dimension in order_of_visits(space):
                step = self._step(space, dimension, centre, reach if dimension.path in visited else None)
                visited.add(dimension.path)
                one = space.only([dimension.path], recipe=centre.recipe)
                missing = [value for cell, value in step.items() if cell not in ended]
                fresh = [value for cell, value in step.items() if cell not in ended and cell not in busy]
                if missing:
                    return [Proposal(one.recipe_of({dimension.path: value})) for value in fresh[:count]]
                best = best_of(ended[cell] for cell in step)
                if best and (centre.trial is None or better(best, centre.trial)):
                    centre = _Centre(best.recipe, best.values, best)
            if centre is before:
                return []
            reach /= 2
        return []
