"""The share of a budget that one trial takes: its folds and its epochs.

    plan_effort(recipe, data, seconds=120.0, hands=2)      Effort(folds=3, epochs=1.0)

Whole runs are worth more than folds, and folds more than further trials: with half the epochs five folds make 4 %
(numbers) to 20 % (classes) more errors, three folds of whole runs 2 % to 8 %, as measured. So there are
five folds, and more on small sets, if one trial and half of another are expected to end in time; else three; else
one validation set. Only if a single run is too long is it shortened.

The seconds of a training are counted from its work, at the pace of a usual core or at that of this machine, measured in
a moment. A study that is resumed keeps the effort that it began with.
"""

import dataclasses
import math

import equinox as eqx
import jax

from ...runtime.machine_pace import accelerator_pace, core_pace
from ...specs.recipe import Recipe
from ...training.population import enter
from ...training.stopping import Off
from .evaluation_data import EvaluationData

_PACE = 5.5e10  # floating-point operations a second, of training on one core, ...
_OF_PRODUCTS = 0.53  # ... and the share of what products of matrices alone would have
_OF_BATCHED_PRODUCTS = 0.13  # the same of an accelerator
_UPDATE_SECONDS = 5e-4  # of an update beside its products
_PATIENT_EPOCHS = 40.0  # of a run that early stopping ends
_START_SECONDS = 8.0  # to start processes and compile
_SMALL_ROWS = 1000
_MANY_ROWS = (20_000, 50_000)  # from which on a budget of trials has three folds, and one part
_FOLD_ROWS = 10  # that a fold needs
_OF_BUDGET = 0.6
_CHOICES = ((8, 1.0), (5, 1.0), (3, 1.0), (1, 1.0), (1, 0.5), (1, 0.25), (1, 0.125), (1, 0.06))


@dataclasses.dataclass(frozen=True)
class Effort:
    """Folds of a trial (1: one validation set), and the share of its recipe's epochs that it trains for.

    `trials` is the expected number of trials; None if it is unknown.
    """

    folds: int = 1
    epochs: float = 1.0
    trials: int | None = None

    def applied(self, recipe: Recipe) -> Recipe:
        """The recipe with its run shortened, where it has a fixed length."""
        if self.epochs == 1.0 or not isinstance(recipe.stopping, Off):
            return recipe
        stopping = dataclasses.replace(recipe.stopping, epochs=max(4.0, float(recipe.stopping.epochs) * self.epochs))
        return dataclasses.replace(recipe, stopping=stopping)

    def describe(self, recipe: Recipe, *, by_time: bool) -> str:
        """The plan in a few words; the recipe is the one that the effort was applied to."""
        several = "trials" if self.trials is None else f"{self.trials} trial{'s' if self.trials > 1 else ''}"
        about = "about " if by_time and self.trials is not None else ""
        judged = f"{self.folds} folds each" if self.folds > 1 else "one validation set"
        length = f", {float(recipe.stopping.epochs):.0f} epochs" if isinstance(recipe.stopping, Off) else ""
        return f"{about}{several}, {judged}{length}"


def training_seconds(recipe: Recipe, data: EvaluationData) -> float:
    """About how long one network trains on one core."""
    train, valid = data.place(recipe.scaler, data.variants[0], data.slots(recipe))
    outputs = data.train.task.outputs
    _, state = eqx.filter_eval_shape(
        lambda r, t, v, k: enter(r, t, v, outputs=outputs, key=k), recipe, train, valid, data.key
    )
    parameters = sum(leaf.size for leaf in jax.tree.leaves(state.parameters))
    epochs = float(recipe.stopping.epochs) if isinstance(recipe.stopping, Off) else _PATIENT_EPOCHS
    rows, batch = len(data.pool), recipe.batches.size
    return epochs * (6.0 * parameters * rows / _PACE + math.ceil(rows / batch) * _UPDATE_SECONDS)


def _folds_by_rows(rows: int) -> int:
    """Where trials are counted and time is not."""
    return 8 if rows < _SMALL_ROWS else 5 if rows < _MANY_ROWS[0] else 3 if rows < _MANY_ROWS[1] else 1


def measure_speed(*, accelerated: bool) -> float:
    """How many times as fast as a usual core this machine's cores train, or its accelerator."""
    pace = _OF_BATCHED_PRODUCTS * accelerator_pace() if accelerated else _OF_PRODUCTS * core_pace()
    return pace / _PACE


def plan_effort(
    recipe: Recipe, data: EvaluationData, *, seconds: float | None, hands: int, speed: float = 1.0
) -> Effort:
    """Folds and epochs of the trials of a study, on so many hands, each `speed` times as fast as a usual core."""
    rows = len(data.pool)
    most = rows // _FOLD_ROWS if data.can_be_dealt else 1
    if seconds is None:
        return Effort(max(1, min(_folds_by_rows(rows), most)))
    each = training_seconds(recipe, data) / speed
    left = max(1.0, seconds - _START_SECONDS)
    able = [(folds, epochs) for folds, epochs in _CHOICES if folds <= most and (folds <= 5 or rows < _SMALL_ROWS)]
    if not data.can_be_dealt:
        able = [(1, 1.0)]  # parts that were given, or that follow time, stay as they are
    fits = (one for one in able if max(1.0, one[0] / hands) * each * one[1] <= _OF_BUDGET * left)
    folds, epochs = next(fits, able[-1])
    return Effort(folds, epochs, max(1, round(left * hands / (each * epochs * folds))))
