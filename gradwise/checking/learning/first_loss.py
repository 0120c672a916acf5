"""The start of training (row F2): a first loss no worse than chance, and a loss that decreases.

    find_start(measure_start(subject, key=key))            GW404: the first loss against that of the best constant
    find_fall(rehearsal)                                   GW405: a hundred updates of the user's own training

The criterion is recognised from the loss (`loss_recognition.recognise`); if it is not, nothing is reported.
"""

import dataclasses
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from ...records.finding import Finding
from ...runtime import keys
from ...runtime.compilation import compile_quickly
from ..batch_access import count_of, inputs_of, targets_of, with_targets
from ..codes import found
from ..rehearsal import Rehearsal
from ..subject import Subject
from .loss_recognition import Recognised, orders, recognise


@dataclasses.dataclass(frozen=True)
class StartMeasured:
    """The first loss, recognised. `chance` is the criterion of the best constant, `even` that of a uniform guess."""

    loss: float
    seen: Recognised
    outputs: float = math.nan  # their root mean square
    centre: float = math.nan  # mean and deviation of the targets, where they are numbers
    deviation: float = math.nan
    place: str = ""

    def numbers(self) -> dict[str, Any]:
        numbers = {"loss": self.loss, "outputs": self.outputs, "centre": self.centre, "deviation": self.deviation}
        return {**numbers, **dataclasses.asdict(self.seen)}


def measure_start(subject: Subject, *, key: Key[Array, ""]) -> StartMeasured:
    """The loss at the initial parameters, and what the best constant prediction would have on the same examples."""
    batch = jax.tree.map(jnp.asarray, subject.smaller(256).batch)
    targets, noise = targets_of(batch), keys.named(key, "start")
    others = None if subject.outputs is None else orders(targets, count_of(batch), key=key)
    if others is None:
        loss = float(compile_quickly(subject.value, subject.size)(subject.parameters, batch, noise))
        return StartMeasured(loss, Recognised(), place=subject.place)

    @partial(compile_quickly, size=subject.size)
    def run(parameters: PyTree) -> Any:
        outputs = subject.outputs(parameters, inputs_of(batch), noise)  # type: ignore[misc]
        return outputs, jax.lax.map(
            lambda given: subject.value(parameters, with_targets(batch, given), noise), jnp.asarray(others)
        )

    outputs, values = jax.tree.map(np.asarray, run(subject.parameters))
    whole = targets_of(subject.train) if subject.train is not None else None
    seen = recognise(outputs, others, values, priors=None if whole is None else np.asarray(whole))
    numbers = np.asarray(targets, np.float64) if seen.kind in ("squared", "absolute") else np.full(1, math.nan)
    return StartMeasured(
        loss=float(values[0]),
        seen=seen,
        outputs=float(np.sqrt(np.mean(np.square(outputs, dtype=np.float64)))),
        centre=float(numbers.mean()),
        deviation=float(np.sqrt(np.mean(np.var(numbers.reshape(len(numbers), -1), axis=0)))),
        place=subject.place,
    )


def find_start(measured: StartMeasured) -> tuple[Finding, ...]:
    """A start far above chance: initial outputs too large, or targets not scaled."""
    seen = measured.seen
    if not seen.kind or not math.isfinite(seen.criterion):
        return ()
    if seen.kind in ("classes", "labels"):
        # Imbalanced classes: a network can be expected to start from a uniform guess, not from the log-prior.
        level = max(seen.constant, seen.even)
        if seen.criterion <= 2 * level:
            return ()
        what = (
            f"the loss starts at {seen.criterion:.3g}, {seen.criterion / level:.1f} times the {level:.3g} of a uniform "
            f"guess: the initial outputs are too large (root mean square {measured.outputs:.3g})."
        )
        small = "initialise the output layer with zero or small weights, and standardise the inputs"
        return (found("GW404", what, where=measured.place, next=small, **measured.numbers()),)
    unusual = not 1e-2 <= measured.deviation <= 1e2 and measured.deviation > 0
    if seen.criterion <= 4 * seen.constant and not unusual:
        return ()
    what = (
        f"the loss starts at {seen.criterion:.3g}, {seen.criterion / max(seen.constant, 1e-30):.3g} times that of the "
        f"best constant ({seen.constant:.3g}): targets have mean {measured.centre:.3g} and standard deviation "
        f"{measured.deviation:.3g}, the initial outputs a root mean square of {measured.outputs:.3g}."
    )
    scale = "standardise with the training set's statistics: targets = (targets - targets.mean(0)) / targets.std(0)"
    return (found("GW404", what, where=measured.place, next=scale, **measured.numbers()),)


# --- the rehearsal


def fall_of(losses: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """The decrease of a series from its first fifth to its last, and its standard error."""
    part = max(2, len(losses) // 5)
    first, last = losses[:part], losses[-part:]
    slack = np.std(np.diff(losses)) / math.sqrt(2)  # the noise of one batch: a trend hardly changes differences
    return float(np.mean(first) - np.mean(last)), float(slack * math.sqrt(2 / part))


def find_fall(rehearsal: Rehearsal, *, place: str = "") -> tuple[Finding, ...]:
    """A warning if a hundred updates certainly lowered the loss by less than 2 % although there was a gradient."""
    losses = rehearsal.losses
    moving = np.isfinite(rehearsal.gradients).all() and bool(np.median(rehearsal.gradients.max(axis=1)) > 1e-8)
    if len(losses) < 10 or not np.isfinite(losses).all() or not moving:
        return ()
    fall, error = fall_of(losses)
    first = float(np.mean(losses[: max(2, len(losses) // 5)]))
    if fall + 2 * error >= 0.02 * abs(first) or fall > 2 * error:
        return ()
    with_what = "Adam at 0.001" if rehearsal.stand_in else "your optimiser"
    what = (
        f"the loss does not decrease: {len(losses)} updates with {with_what} took it from {first:.4g} to "
        f"{first - fall:.4g} (noise {error:.1g}), although the gradient is not 0."
    )
    step = "gradwise.check(..., only=['gradient', 'rates']): is the gradient right, and which rate trains?"
    return (found("GW405", what, where=place, next=step, fall=fall, error=error, losses=losses.tolist()),)
