"""When to stop (rows C6, C7). Ages and patience are counted in *examples visited*.

    Patience(growth=Times(1.5))           at a new minimum at age t, patience becomes max(patience, 1.5 t)
    Patience(growth=Plus(50_000))         ... becomes max(patience, t + 50 000)
    Patience(significance=0.05)           ... only if a paired test says the improvement is real
    Off(epochs=20)                        a fixed length, for analysis: stopping hides what other knobs do
    Off(epochs=128, keep="best")          a fixed length, for schedules over the whole run; the best model is kept
    Off(keep="best", significance=0.07)   ... or the latest one that a paired test does not find worse than the best

Any improvement of the validation score is kept as the best model (the loss breaks ties). Patience never grows on an
equal score. Under `Patience` the test gates patience alone, since gating what is kept was measured to hurt. In a run
whose rate falls to zero it is the other way round: the lowest of many noisy scores is often an early one by luck, and
the last models are the trained ones.
"""

import abc
import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..specs.contracts import AbstractStopping, Scores
from ..specs.knobs import Spec, is_off, knob, switch
from ..specs.priors import LogUniform, Uniform

LONGEST_EXAMPLES = 2**31 - 2**27  # ages are 32-bit integers, with room for one more interval


class AbstractGrowth(Spec):
    @abc.abstractmethod
    def __call__(self, age: Int[Array, ""]) -> Float[Array, ""]:
        """The patience, in examples, that a new minimum at this age deserves."""


class Times(AbstractGrowth):
    """Patience grows in proportion to the age of the best model."""

    factor: float = knob(
        1.5,
        allowed="[1, inf)",
        prior=Uniform(1.2, 4.0),
        row="C6",
        about="patience is at least this many times the best age",
    )

    def __call__(self, age: Int[Array, ""]) -> Float[Array, ""]:
        return age * self.factor


class Plus(AbstractGrowth):
    """Patience reaches a fixed number of examples past the best model."""

    examples: float = knob(
        10_000.0,
        allowed="[1, inf)",
        prior=LogUniform(1e3, 1e7),
        row="C6",
        about="examples to continue past the best age",
    )

    def __call__(self, age: Int[Array, ""]) -> Float[Array, ""]:
        return age + self.examples


class _PatienceState(NamedTuple):
    patience: Int[Array, ""]
    best_score: Float[Array, ""]
    best_loss: Float[Array, ""]
    best_age: Int[Array, ""]
    reference: Float[Array, " V"]  # scores at the last minimum that was found significant; empty when not asked for


def is_better(state: Any, score: Float[Array, ""], loss: Float[Array, ""]) -> Bool[Array, ""]:
    """A lower score, or the same score at a lower loss. Not-a-number is never better."""
    return (score < state.best_score) | ((score == state.best_score) & (loss < state.best_loss))


def is_significant(reference: Float[Array, " V"], scores: Float[Array, " V"], level: Any) -> Bool[Array, ""]:
    """One-sided paired test (normal approximation) that the mean score fell."""
    fall = reference - scores
    count = fall.shape[0]
    error = jnp.sqrt(jnp.var(fall) * count / max(1, count - 1) / count)
    return jnp.mean(fall) > ndtri(1.0 - level) * error


class Patience(AbstractStopping):
    """Early stopping: the number of updates, chosen almost for free.

    `significance` is the one switch for which new minimum extends patience; the best model is kept at any of them.

    | significance | patience grows at |
    |---|---|
    | 0 (default) | any score below the best; never at an equal one, even where a lower loss breaks the tie |
    | 0.05 | those that a paired test at 5 % finds below the last one that extended it: runs end sooner |
    """

    initial_examples: float = knob(
        100_000.0,
        allowed="[0, inf)",
        prior=LogUniform(1e3, 1e6),
        row="C6",
        about="patience at the start, in examples",
    )
    initial_epochs: float = knob(
        20.0,
        allowed="[0, inf)",
        prior=LogUniform(1.0, 100.0),
        row="C6",
        about="patience at the start, in epochs; the larger of the two applies",
    )
    growth: AbstractGrowth = Times()
    significance: float = knob(
        0.0,
        allowed="[0, 0.5)",
        prior=LogUniform(1e-3, 0.3),
        row="C7",
        off=0.0,
        about="patience grows when a paired test at this level finds the score lower; 0: at any lower score",
    )
    spacing: float = switch(
        10.0,
        allowed="[1, inf)",
        row="C6",
        kind="optimiser",
        about="examples between validations, in sizes of the validation set",
    )
    least_examples: int = switch(
        1000, allowed="[1, inf)", row="C6", kind="optimiser", about="examples between validations, at the least"
    )
    epochs: float = switch(
        1000.0, allowed="(0, inf)", row="C6", kind="optimiser", about="maximum length of the run, in epochs"
    )

    def init(self, count: int, validation: int) -> PyTree:
        start = jnp.maximum(self.initial_examples, self.initial_epochs * count)
        return _PatienceState(
            patience=_whole(start),
            best_score=jnp.asarray(jnp.inf),
            best_loss=jnp.asarray(jnp.inf),
            best_age=jnp.zeros((), jnp.int32),
            reference=jnp.full(0 if is_off(self.significance) else validation, jnp.inf),
        )

    def step(
        self, state: PyTree, age: Int[Array, ""], scores: Scores
    ) -> tuple[PyTree, Bool[Array, ""], Bool[Array, ""]]:
        score, loss = jnp.mean(scores.score), jnp.mean(scores.loss)
        better = is_better(state, score, loss)
        lower = score < state.best_score
        grows, reference = lower, state.reference
        if not is_off(self.significance):
            first = jnp.isinf(state.best_score)
            grows = lower & (first | is_significant(state.reference, scores.score, self.significance))
            reference = jnp.where(grows, scores.score, state.reference)
        patience = jnp.where(grows, jnp.maximum(state.patience, _whole(self.growth(age))), state.patience)
        new = _PatienceState(
            patience=patience,
            best_score=jnp.where(better, score, state.best_score),
            best_loss=jnp.where(better, loss, state.best_loss),
            best_age=jnp.where(better, age, state.best_age),
            reference=reference,
        )
        return new, better, age >= patience

    def interval_examples(self, count: int, validation: int) -> int:
        return int(max(self.spacing * validation, validation, self.least_examples))

    def limit_examples(self, count: int) -> int:
        return int(min(self.epochs * count, LONGEST_EXAMPLES))

    def without_length(self) -> AbstractStopping:
        return dataclasses.replace(self, epochs=1.0)

    def patience_examples(self, state: PyTree) -> Int[Array, ""]:
        return state.patience


class _OffState(NamedTuple):
    best_score: Float[Array, ""]
    best_loss: Float[Array, ""]
    reference: Float[Array, " V"]  # the scores of the best model; empty when no test is asked for


class Off(AbstractStopping):
    """A fixed number of epochs. The last model is the result and validation is only watched, unless `keep` says so."""

    stops_early = False
    epochs: float = switch(10.0, allowed="(0, inf)", row="C6", kind="optimiser", about="length of the run, in epochs")
    spacing: float = switch(
        10.0,
        allowed="[1, inf)",
        row="C6",
        kind="optimiser",
        about="examples between validations, in sizes of the validation set",
    )
    least_examples: int = switch(
        1000, allowed="[1, inf)", row="C6", kind="optimiser", about="examples between validations, at the least"
    )

    every_epochs: float = switch(
        0.0, allowed="[0, inf)", row="C6", kind="optimiser", about="minimum epochs between validations"
    )
    keep: str = switch(
        "last", allowed=("last", "best"), row="C6", kind="optimiser", about="which model is the result of the run"
    )
    significance: float = switch(
        0.0,
        allowed="[0, 0.5)",
        row="C7",
        kind="optimiser",
        about="with keep='best', a later model is kept unless a paired test at this level finds it worse; 0: no test",
    )

    def init(self, count: int, validation: int) -> PyTree:
        if self.keep == "last":
            return ()
        reference = jnp.full(validation if self.significance else 0, jnp.inf)
        return _OffState(jnp.asarray(jnp.inf), jnp.asarray(jnp.inf), reference)

    def step(
        self, state: PyTree, age: Int[Array, ""], scores: Scores
    ) -> tuple[PyTree, Bool[Array, ""], Bool[Array, ""]]:
        if self.keep == "last":
            return (), jnp.asarray(True), jnp.asarray(False)
        score, loss = jnp.mean(scores.score), jnp.mean(scores.loss)
        better = is_better(state, score, loss)
        kept, reference = better, state.reference
        if self.significance:
            worse = is_significant(scores.score, state.reference, self.significance)
            kept = better | (jnp.isfinite(score) & ~worse)
            reference = jnp.where(better, scores.score, state.reference)
        best = jnp.where(better, score, state.best_score), jnp.where(better, loss, state.best_loss)
        return _OffState(*best, reference), kept, jnp.asarray(False)

    def interval_examples(self, count: int, validation: int) -> int:
        return int(max(self.spacing * validation, validation, self.least_examples, self.every_epochs * count))

    def limit_examples(self, count: int) -> int:
        return int(min(self.epochs * count, LONGEST_EXAMPLES))

    def without_length(self) -> AbstractStopping:
        return dataclasses.replace(self, epochs=1.0)

    def patience_examples(self, state: PyTree) -> Int[Array, ""]:
        return jnp.asarray(LONGEST_EXAMPLES)


def _whole(examples: Float[Array, ""]) -> Int[Array, ""]:
    return jnp.minimum(examples, LONGEST_EXAMPLES).astype(jnp.int32)
