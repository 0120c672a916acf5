"""How far back along a sequence the loss can feel its inputs (rows A12, F18): the vanishing gradient of long spans.

    measured = measure_span(subject, rehearsal, key=key)
    measured.felt                    the gradient's norm at each distance from the end, before and after the rehearsal
    find_span(measured)              GW607, if most steps are out of reach both times

Bengio, Simard and Frasconi (1994): where each step multiplies a gradient by a factor below 1, what happened long ago is
lost to learning, however much it matters.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from ...records.finding import Finding
from ...runtime import keys
from ...runtime.compilation import compile_quickly
from ...runtime.files import finite
from ..batch_access import count_of, inputs_of, take, with_inputs
from ..codes import found
from ..rehearsal import Rehearsal
from ..subject import Subject

EXAMPLES = 64  # at most
LOST = 1e-4  # of the largest gradient at any distance
_FEWEST_STEPS = 8


@dataclass(frozen=True)
class SpanMeasured:
    """`felt[k, d]`: the gradient with respect to inputs d steps before the end; k is 0 before the rehearsal, 1 after.

    `examples[d]` is the share of sequences that are longer than d steps.
    """

    felt: Float[np.ndarray, "2 steps"]
    examples: Float[np.ndarray, " steps"]

    @property
    def lost(self) -> Float[np.ndarray, " 2"]:
        """The share of all steps that the loss does not feel."""
        highest = self.felt.max(axis=1, keepdims=True, initial=1e-300)
        return np.asarray(((self.felt < LOST * highest) * self.examples).sum(axis=1) / max(self.examples.sum(), 1e-300))

    @property
    def reach(self) -> int:
        """The largest distance that is felt before or after the rehearsal."""
        highest = self.felt.max(axis=1, keepdims=True, initial=1e-300)
        return int(np.flatnonzero((self.felt >= LOST * highest).any(axis=0)).max(initial=0))


def measure_span(subject: Subject, rehearsal: Rehearsal, *, key: Key[Array, ""]) -> SpanMeasured | None:
    """The gradient along padded sequences (n, steps, channels), NaN beyond their ends; None for short ones."""
    batch = take(subject.batch, np.arange(min(count_of(subject.batch), EXAMPLES)))
    inputs = np.asarray(inputs_of(batch))
    lengths = (~np.isnan(inputs[:, :, 0])).sum(axis=1)
    if lengths.max() < _FEWEST_STEPS:
        return None

    @compile_quickly
    def gradients(parameters: object, inputs: Array) -> Array:
        def value(given: Array) -> Array:
            return subject.value(parameters, with_inputs(batch, given), keys.named(key, "noise"))

        return jnp.sqrt(jnp.sum(jax.grad(value)(inputs) ** 2, axis=2))

    distance = lengths[:, None] - 1 - np.arange(inputs.shape[1])  # negative beyond the end
    present = distance >= 0
    count = np.bincount(distance[present], minlength=int(lengths.max()))
    felt = []
    for parameters in (rehearsal.start, rehearsal.end):
        norms = np.asarray(gradients(parameters, jnp.asarray(inputs)), np.float64)
        felt.append(np.bincount(distance[present], norms[present], minlength=len(count)) / count)
    return SpanMeasured(np.stack(felt), count / len(lengths))


def find_span(measured: SpanMeasured | None) -> tuple[Finding, ...]:
    """GW607: more than half of all steps are out of reach, before and after a short training run."""
    if measured is None or not np.isfinite(measured.felt).all() or measured.lost.min() <= 0.5:
        return ()
    what = f"the loss feels the last {measured.reach + 1} steps of a sequence; {measured.lost.min():.0%} of all steps "
    what += f"change it less than {LOST:.0e} as much: what happened there is not learned."
    step = "let every step reach the output (`--set model.pooling=AttentionPooling`), or give gated units long "
    step += f"memories (`--set model.cell.span={len(measured.examples)}`)."
    numbers = finite({"felt": measured.felt[1].tolist(), "lost": measured.lost.tolist()})
    return (found("GW607", what, next=step, **numbers),)
