"""A curriculum (row H1): easy examples first, harder ones gradually, in the end all of them equally.

    dataset = easiest_first(dataset, difficulty)     any number per example: a length, a noise level, a teacher's loss
    Curriculum(size=64, first=0.1, epochs=5)         the first tenth at the start, everything after five epochs

The order of the file is the order of difficulty; splits keep it. While the curriculum lasts, an update draws its
examples at random from the easiest share: the distribution moves from an easy one to the real one, a continuation. Then
training continues with whole epochs, reshuffled.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ..runtime.errors import RequestError
from ..runtime.keys import named
from ..specs.dataset import Dataset
from ..specs.knobs import knob, switch
from ..specs.priors import Choice, LogUniform, Uniform
from .batches import AbstractOrder, Reshuffled


class Curriculum(AbstractOrder):
    """Examples drawn from the easiest share of the training set; the share grows from `first` to 1 over `epochs`.

    With t the examples visited as a part of `epochs` T, the share is first + (1 - first) t ("linear"), its square
    root ("root": harder ones come sooner, Platanios et al. 2019) or first^(1-t) ("geometric": later).
    """

    first: float = knob(
        0.2, allowed="(0, 1]", prior=Uniform(0.05, 0.5), row="H1", about="the share of easiest examples at the start"
    )
    epochs: float = knob(
        5.0, allowed="[0, inf)", prior=LogUniform(1.0, 50.0), row="H1", about="how long the curriculum lasts, in epochs"
    )
    growth: str = switch(
        "linear",
        allowed=("linear", "root", "geometric"),
        prior=Choice(("linear", "root", "geometric")),
        row="H1",
        kind="optimiser",
        about="how the share grows",
    )

    def share(self, examples: Float[Array, "..."], count: int) -> Float[Array, "..."]:
        """The share of the training set in use at this age."""
        t = jnp.clip(examples / jnp.maximum(self.epochs * count, 1e-9), 0.0, 1.0)
        if self.growth == "geometric":
            return self.first ** (1.0 - t)
        if self.growth == "root":
            return jnp.sqrt(self.first**2 + (1.0 - self.first**2) * t)
        return self.first + (1.0 - self.first) * t

    def indices(self, updates: Int[Array, " N"], count: int, *, key: Key[Array, ""]) -> tuple[Array, Array, Array]:
        whole, present, age = Reshuffled(self.size).indices(updates, count, key=key)
        size = whole.shape[1]
        before = jnp.maximum(age - size, 0).astype(jnp.float32)
        # At least a batch to draw from, and as many as the set has at most.
        reach = jnp.clip(jnp.ceil(self.share(before, count) * count), min(size, count), count)
        drawing = named(key, "curriculum")
        drawn = jax.vmap(lambda number: jr.uniform(jr.fold_in(drawing, number), (size,)))(updates)
        easy = jnp.minimum(jnp.floor(drawn * reach[:, None]), reach[:, None] - 1).astype(jnp.int32)
        learning = (before < self.epochs * count)[:, None]
        return jnp.where(learning, easy, whole), present, age


def easiest_first(dataset: Dataset, difficulty: Any) -> Dataset:
    """The data set with its rows sorted by difficulty, the easiest first; equal ones keep their order."""
    scores = np.asarray(difficulty, np.float64)
    if scores.shape != (len(dataset),):
        raise RequestError(
            f"`difficulty` must have one number for each of the {len(dataset)} examples; got shape {scores.shape}."
        )
    if np.isnan(scores).any():
        raise RequestError(f"`difficulty` of example {int(np.isnan(scores).argmax())} is NaN.")
    return dataclasses.replace(dataset.take(np.argsort(scores, kind="stable")), test=dataset.test)
