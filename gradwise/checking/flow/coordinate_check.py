"""The coordinate check of width transfer (row J7): do activations change equally in narrow and wide networks?

    check = coordinate_check(recipe_for_width, (32, 128, 512), train, valid, outputs=10, key=key)
    check.slopes      # for each layer: the power of the width with which its activations change in a few updates

If a learning rate tuned on a narrow network suits a wide one, every slope is near 0. A positive slope means that a wide
network changes too much (it will diverge at that rate), a negative one that a layer learns less as it grows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from ...curvature.objective import Examples
from ...runtime.errors import RequestError
from ...specs.paths import named_leaves
from ...specs.recipe import Recipe
from ...training.interval import advance
from ...training.state import init

_ROWS = 256
STEADY = 0.3  # slopes of 0.5 and 1 are what theory gives without transfer


@dataclass(frozen=True)
class CoordinateCheck:
    """The mean absolute change of each layer's activations at each width, and the slopes on logarithmic scales."""

    widths: tuple[int, ...]
    layers: tuple[str, ...]
    changes: np.ndarray  # layer, width
    slopes: np.ndarray

    @property
    def steady(self) -> bool:
        """Whether no layer changes by more than a power `STEADY` of the width."""
        return bool(np.all(np.abs(self.slopes) < STEADY))


def _activations(model: Any, inputs: Float[Array, "n ..."]) -> list[Float[Array, "n units"]]:
    """The outputs of each hidden layer and of the network."""

    def one(example: Array) -> list[Array]:
        seen, h = [], jnp.ravel(example)
        for layer in model.layers:
            h = layer(h, key=None)
            seen.append(h)
        return [*seen, model.output(h)]

    return jax.vmap(one)(inputs)


@eqx.filter_jit
def _changes(
    recipe: Recipe,
    examples: tuple[Examples, Examples],
    sizes: tuple[int, int],
    updates: int,
    keys: Key[Array, " seeds"],
) -> Float[Array, "seeds layers"]:
    """How far each layer's activations change on some training examples, for each initial network."""
    inputs = examples[0].inputs[:_ROWS]

    def one(key: Key[Array, ""]) -> Array:
        problem, state = init(recipe, *examples, outputs=sizes[0], classes=sizes[1], key=key)
        before = _activations(problem.model(state.parameters), inputs)
        state, _ = advance(problem, state, updates)
        after = _activations(problem.model(state.parameters), inputs)
        return jnp.stack([jnp.mean(jnp.abs(new - old)) for new, old in zip(after, before, strict=True)])

    return jax.vmap(one)(keys)


def coordinate_check(
    recipe_for_width: Callable[[int], Recipe],
    widths: Sequence[int],
    train: Examples,
    valid: Examples,
    *,
    outputs: int,
    classes: int = 0,
    updates: int = 4,
    seeds: int = 4,
    key: Key[Array, ""],
) -> CoordinateCheck:
    """Trains the recipe of each width for a few updates, from several initial networks, and compares the changes.

    The networks must have `layers`, each called as `layer(h, key=None)`, and an `output`, as `Mlp` builds them.
    """
    if len(set(widths)) < 2:
        raise RequestError(f"a coordinate check needs at least two widths; got {tuple(widths)}.")
    recipes = [recipe_for_width(width) for width in widths]
    parameters = eqx.filter_eval_shape(
        lambda one: init(recipes[0], train, valid, outputs=outputs, classes=classes, key=one)[1].parameters, key
    )
    if not {"layers", "output"} <= {name.partition(".")[0] for name, _ in named_leaves(parameters)}:
        raise RequestError(
            f"a coordinate check needs a network with `layers` and `output`; got {type(parameters).__name__}."
        )
    names = (*(f"layers.{number}" for number in range(len(parameters.layers))), "output")
    many = jr.split(key, seeds)
    told = [_changes(recipe, (train, valid), (outputs, classes), updates, many) for recipe in recipes]
    changes = np.stack([np.asarray(one, np.float64).mean(axis=0) for one in told], axis=1)
    slopes = np.polyfit(np.log(np.asarray(widths, float)), np.log(changes.T), 1)[0]
    return CoordinateCheck(tuple(widths), names, changes, slopes)
