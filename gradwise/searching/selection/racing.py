"""Racing against the first trial: a trial that can no longer win is stopped.

    race = Race(data, first, curve)                the first trial with its networks, and its curve
    race.is_behind(done)                           by the first fold, more than three standard errors worse
    race.limits(recipe)                            scores that a run on the first fold may not exceed on its way
    race.estimate(done)                            its score on all rows, as far as one fold can tell

If the first trial is the recommended recipe, a candidate only has to be about as good. The race depends on trial 0
alone, so the decision does not depend on which trials run side by side.

During training, a run may be worse than the first trial at that age by as much as the first trial still gained from
there on: a large learning rate is worse for long, and catches up when it falls.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...specs.recipe import Recipe
from ..running.evaluation_data import EvaluationData
from ..running.jobs import Done, Limits
from ..storage.network_store import TrainedTrial

_DEVIATIONS = 3.0  # standard errors
_WATCHED_FROM = 0.25  # of a run: before, it says little
UNLIMITED = 16  # trials that may run beside the first one: they have no limits on their way


class Race:
    """The first trial's result on the first fold. If it produced no model, no trial is behind."""

    def __init__(self, data: EvaluationData, first: TrainedTrial, curve: Mapping[str, Sequence[float]]):
        self.rows = data.judged_rows(data.variants[0])
        self.first, self.curve = first, curve
        self.scores = first.scores[self.rows]

    def _differences(self, done: Done) -> np.ndarray:
        """How much worse it is on each row of the fold."""
        assert done.scores is not None
        own = done.scores[: len(self.rows)] * (len(self.rows) / len(done.scores))
        return own - self.scores

    def is_behind(self, done: Done) -> bool:
        if done.outcome == "behind":
            return True
        if done.scores is None:
            return False
        worse = self._differences(done)
        return bool(worse.mean() > _DEVIATIONS * worse.std() / math.sqrt(len(worse)))

    def estimate(self, done: Done) -> Done:
        """The training of the first fold as the whole trial: the first trial's score, and what it is worse by."""
        score = self.first.score + float(self._differences(done).mean())
        return dataclasses.replace(done, outcome="behind", score=score, scores=None, outputs=None, network=None)

    def limits(self, recipe: Recipe) -> Limits:
        """The highest score that a run of this recipe may have at each age, on the first fold; none for runs of another
        length, whose rate has another course."""
        ages, scores = (np.asarray(self.curve.get(name, ()), float) for name in ("age_examples", "valid_score"))
        own = self.first.recipe
        if len(ages) < 4 or recipe.stopping != own.stopping or recipe.batches != own.batches:
            return ((), ())
        best = np.minimum.accumulate(scores)
        harder = float(self.scores.mean()) - self.first.score  # than the other folds
        noise = _DEVIATIONS * float(self.scores.std()) / math.sqrt(len(self.scores))
        highest = best + (best - best[-1]) + harder + noise
        late = ages >= _WATCHED_FROM * ages[-1]
        return tuple(ages[late].tolist()), tuple(highest[late].tolist())
