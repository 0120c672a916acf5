"""The ground on which all trials of a study compete: one split, drawn once, and examples as each recipe scales them.

The parts depend on the study's key alone, so every trial, every worker and every later run sees the same ones. The test
part lies here untouched until the search is over (row E2).
"""

import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key

from ..core import keys
from ..core.dataset import Dataset
from ..core.parts import AbstractScaler, AbstractSplit, FittedScaler
from ..training.placing import CLASS_WEIGHTS, place, target_units, weights_of_classes
from ..training.state import Examples

Variant = tuple[str, int]
WHOLE: Variant = ("whole", 0)
_INPUT_SHARE = 0.7  # of the inputs that a member of a committee of input subsets sees


class SomeInputs(FittedScaler):
    """A fitted scaler of which some outputs are held at 0: the network cannot see those inputs."""

    scaler: FittedScaler
    seen: Any

    def map(self, examples: Any, library: Any) -> Any:
        return self.scaler.map(examples, library) * self.seen

    def describe(self) -> list[str]:
        return [*self.scaler.describe(), f"this network sees {int(np.sum(self.seen))} of {np.size(self.seen)} inputs."]


@dataclasses.dataclass(frozen=True)
class Ground:
    """The parts of a data set, and what turns them into examples on the device."""

    train: Dataset
    valid: Dataset
    test: Dataset | None
    metric: str
    class_weight: CLASS_WEIGHTS
    words: tuple[int, ...]  # of the study's key: a key itself does not travel between processes

    @staticmethod
    def of(
        dataset: Dataset,
        split: AbstractSplit,
        *,
        metric: str,
        class_weight: CLASS_WEIGHTS = None,
        key: Key[Array, ""],
    ) -> "Ground":
        train, valid, test = split(dataset, key=keys.named(key, "split"))
        words = tuple(int(word) for word in np.ravel(jax.random.key_data(key)))
        return Ground(train, valid, test, metric, class_weight, words)

    @property
    def key(self) -> Key[Array, ""]:
        return jax.random.wrap_key_data(jax.numpy.asarray(self.words, jax.numpy.uint32))

    @property
    def units(self) -> tuple[np.ndarray, np.ndarray]:
        return target_units(self.train)

    def resampled(self, variant: Variant) -> Dataset:
        """The training part of a variant: as it is, or drawn anew from itself with replacement ("bag", number)."""
        if variant[0] != "bag":
            return self.train
        random = keys.generator(keys.of_trial(keys.named(self.key, "bag"), variant[1]))
        return self.train.take(np.sort(random.integers(0, len(self.train), len(self.train))))

    def scaler(self, spec: AbstractScaler, variant: Variant = WHOLE) -> FittedScaler:
        """The scaler fitted on the training part; for the variant ("inputs", number) some inputs are hidden."""
        train = self.resampled(variant)
        fitted = spec.fit(train.inputs, train.columns)
        if variant[0] != "inputs":
            return fitted
        shape = fitted.apply(train.inputs[:1]).shape[1:]
        width = int(np.prod(shape))
        random = keys.generator(keys.of_trial(keys.named(self.key, "inputs"), variant[1]))
        seen = np.zeros(width, np.float32)
        seen[random.permutation(width)[: max(1, round(_INPUT_SHARE * width))]] = 1.0
        return SomeInputs(fitted, seen.reshape(shape))

    def place(self, spec: AbstractScaler, variant: Variant = WHOLE) -> tuple[Examples, Examples]:
        """Training and validation examples on the device."""
        train = self.resampled(variant)
        scaler = self.scaler(spec, variant)
        by_class = weights_of_classes(self.class_weight, self.train)
        judged = weights_of_classes("balanced", self.valid) if self.metric == "balanced_error_rate" else by_class
        return place(train, scaler, self.units, by_class), place(self.valid, scaler, self.units, judged)
