"""Asynchronous successive halving: many short runs, of which the best continue (row J8).

    SuccessiveHalving(least_examples=10_000, factor=3, most_examples=270_000)

Rungs are ages: `least_examples`, then `factor` times more each, up to `most_examples`. Of those that ended at a rung
the best 1/factor are promoted to the next; if none can be promoted yet, a new draw of the priors starts at the lowest
rung. No rung waits for its last trial. A promoted trial `continues` an earlier one and shares its random numbers: it is
the same network, trained for longer.

With `random_layers` a run of the lowest rung is cheaper still (row E15): its hidden layers stay as they were drawn, and
its output alone learns. Those that go on begin anew from the same weights and train all of them.
"""

import itertools
import math
from typing import Any

from jaxtyping import Array, Key

from ...records.trial import Proposal, Trial
from ...runtime.errors import RequestError
from ...specs.knobs import switch
from ...specs.search_space import Space
from ..comparison.cheap_recipes import random_lower_layers, train_all_layers
from .contract import AbstractStrategy, History
from .random_search import random_point


def _rank(trial: Trial) -> tuple[float, float, int]:
    """Order within a rung: those without a model come last."""
    loss = trial.loss if math.isfinite(trial.loss) else math.inf
    return (trial.score, loss, trial.randomness) if trial.ok else (math.inf, math.inf, trial.randomness)


class SuccessiveHalving(AbstractStrategy):
    """Draws of the priors, most of them stopped early."""

    least_examples: int = switch(10_000, allowed="[1, inf)", row="J8", about="the age of the lowest rung, in examples")
    factor: int = switch(
        3, allowed="[2, inf)", row="J8", about="one in this many is promoted, to this many times its age"
    )
    most_examples: int = switch(270_000, allowed="[1, inf)", row="J8", about="the age of the highest rung, in examples")
    random_layers: bool = switch(False, row="E15", about="at the lowest rung, hidden layers keep their random weights")

    def __check_init__(self) -> None:
        if self.most_examples < self.least_examples:
            raise RequestError(
                f"`SuccessiveHalving.most_examples` must be at least `least_examples`; got {self.most_examples} and "
                f"{self.least_examples}. Did you swap them?"
            )

    @property
    def rungs(self) -> list[int]:
        """The ages, in examples; the highest is `most_examples` itself."""
        ages = [self.least_examples]
        while ages[-1] * self.factor < self.most_examples:
            ages.append(ages[-1] * self.factor)
        return [*ages, self.most_examples] if ages[-1] < self.most_examples else ages

    def _promotion(self, ended: dict[int, list[Trial]], begun: dict[int, set[int]]) -> tuple[Trial, int] | None:
        """Who may go on, and to which age: from the highest rung down, the best first."""
        rungs = self.rungs
        for lower, upper in reversed(list(itertools.pairwise(rungs))):
            ranked = sorted(ended.get(lower, []), key=_rank)
            for trial in ranked[: len(ranked) // self.factor]:
                # Whom patience stopped has ended by itself: more examples would change nothing.
                cheap = self.random_layers and lower == rungs[0]
                ended_itself = trial.outcome == "patience" and not cheap
                if trial.ok and not ended_itself and trial.randomness not in begun.get(upper, set()):
                    return trial, upper
        return None

    def ask(self, space: Space, history: History, count: int, *, key: Key[Array, ""]) -> list[Proposal]:
        ended: dict[int, list[Trial]] = {}
        begun: dict[int, set[int]] = {}  # for each age the trials that have reached for it, by their first number
        for trial in history.trials:
            if trial.phase == "search" and trial.examples is not None:
                begun.setdefault(trial.examples, set()).add(trial.randomness)
                if trial.outcome != "failed":
                    ended.setdefault(trial.examples, []).append(trial)
        for number, running in history.running:
            if running.examples is not None:
                first = number if running.continues is None else running.continues
                begun.setdefault(running.examples, set()).add(first)

        proposals: list[Proposal] = []
        for number in range(history.next, history.next + count):
            promotion = self._promotion(ended, begun)
            if promotion is None:
                recipe: Any = space.recipe_at(random_point(space, number, key))
                cheap = random_lower_layers(recipe) if self.random_layers else recipe
                proposals.append(Proposal(cheap, examples=self.rungs[0]))
                continue
            trial, age = promotion
            begun.setdefault(age, set()).add(trial.randomness)
            full = train_all_layers(trial.recipe) if self.random_layers else trial.recipe
            proposals.append(Proposal(full, examples=age, continues=trial.randomness))
        return proposals
