"""The data of Algorithm 1: one split, and for each stack of learned layers its codes.

    data, scaler, parts = split_for_layers(recipe, dataset, key)
    level = dataclasses.replace(data, stacks=(below.layers, other.layers))
    level.place(NoScaling(), ("codes", 1))     what a level on top of the second stack learns from, and is judged by
    level.place(NoScaling(), WHOLE)            the same of fine-tuning, which reads inputs and needs a target

Stacks travel between processes and codes do not: they are the larger of the two, and each process computes its own,
once for all settings of a level.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from ...curvature.objective import Examples
from ...models.mlp import Layer
from ...pretraining.stack import encode_inputs
from ...runtime import keys
from ...specs.adapters import as_criterion
from ...specs.contracts import AbstractScaler
from ...specs.dataset import Dataset, Task
from ...specs.fitted_scaler import FittedScaler
from ...specs.recipe import Recipe
from ...training.prepare import place_examples, split_labelled, target_units
from ..running.evaluation_data import WHOLE, Variant


@dataclasses.dataclass(frozen=True)
class LayerData:
    """Scaled examples, labelled rows first, and the stacks of layers that a level is learned on."""

    train: Examples
    valid: Examples
    labelled: int
    task: Task
    words: tuple[int, ...]  # of the study's key: a key itself does not travel between processes
    stacks: tuple[tuple[Layer, ...], ...] = ((),)

    @property
    def key(self) -> Key[Array, ""]:
        return jax.random.wrap_key_data(jnp.asarray(self.words, jnp.uint32))

    @property
    def classes(self) -> int:
        return self.task.outputs if self.task.kind == "classes" else 0

    @property
    def dealt(self) -> int:
        return 1

    @property
    def final_variants(self) -> tuple[Variant, ...]:
        return (WHOLE,)

    @functools.cached_property
    def _codes(self) -> dict[int, tuple[Array, Array]]:
        return {}

    def codes(self, number: int) -> tuple[Array, Array]:
        """What stack `number` makes of the training and of the validation inputs."""
        if number not in self._codes:
            layers = self.stacks[number]
            train, valid = (encode_inputs(layers, x) if layers else x for x in (self.train.inputs, self.valid.inputs))
            self._codes[number] = train, valid
        return self._codes[number]

    def slots(self, recipe: Recipe) -> int:
        """None: layers learn from dense rows."""
        return 0

    def place(self, spec: AbstractScaler, variant: Variant = WHOLE, slots: int = 0) -> tuple[Examples, Examples]:
        """The examples of a job. They were scaled when they were split."""
        if variant[0] == "codes":
            train, valid = self.codes(variant[1])
            return Examples(train, self.train.targets), Examples(valid, self.valid.targets)
        inputs, targets = (part[: self.labelled] for part in (self.train.inputs, self.train.targets))
        return dataclasses.replace(self.train, inputs=inputs, targets=targets, weights=None), self.valid


def split_for_layers(
    recipe: Recipe, dataset: Dataset, key: Key[Array, ""]
) -> tuple[LayerData, FittedScaler, dict[str, Dataset | None]]:
    """The data as the recipe splits and scales them; examples without a target follow those that have one."""
    known = dataset.labelled
    some = dataset if known.all() else dataclasses.replace(dataset.take(np.flatnonzero(known)), test=dataset.test)
    train, valid, test = split_labelled(
        recipe.split, as_criterion(recipe.criterion), some, key=keys.named(key, "split")
    )
    scaler = recipe.scaler.fit(train.inputs, train.columns)
    units = target_units(train)
    placed = place_examples(train, scaler, units, None)
    if not known.all():
        spare = jnp.asarray(scaler.apply(dataset.inputs[~known]))
        fill: Any = -1 if dataset.task.kind == "classes" else jnp.nan
        rest = jnp.full((spare.shape[0], *placed.targets.shape[1:]), fill, placed.targets.dtype)
        placed = dataclasses.replace(
            placed,
            inputs=jnp.concatenate([placed.inputs, spare]),
            targets=jnp.concatenate([placed.targets, rest]),
            weights=None,
        )
    words = tuple(int(word) for word in np.ravel(jax.random.key_data(key)))
    judged = place_examples(valid, scaler, units, None)
    data = LayerData(placed, judged, len(train), dataset.task, words)
    return data, scaler, {"train": train, "valid": valid, "test": test}
