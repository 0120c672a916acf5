"""The coordinate check of width transfer (row J7): do activations change equally in narrow and wide networks?

    check = coordinate_check(recipe_for_width, (32, 128, 512), train, valid, outputs=10, key=key)
    check.slopes      # for each layer: the power of the width with which its activations change in a few updates

If a learning rate tuned on a narrow network suits a wide one, every slope is near 0. A positive slope means that a wide
network changes too much (it will diverge at that rate), a negative one that a layer learns less as it grows.

    gradwise check digits --only widths        the same for the recommended recipe, and with another one by --set
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

from ...criteria.hidden_units import run_with_units
from ...curvature.objective import Examples
from ...records.finding import Finding
from ...runtime.errors import RequestError
from ...specs.networks import apply_batch
from ...specs.recipe import Recipe
from ...training.interval import advance
from ...training.state import init
from ..codes import found

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


def _activations(model: Any, inputs: Float[Array, "n ..."]) -> dict[str, Array]:
    """The outputs of each hidden layer and of the network."""
    outputs, units = run_with_units(apply_batch, model, inputs, None)
    return {**{one.name: one.activations for one in units}, "output": outputs}


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
        return jnp.stack([jnp.mean(jnp.abs(after[name] - before[name])) for name in before])

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
    """Trains the recipe of each width for a few updates, from several initial networks, and compares the changes."""
    if len(set(widths)) < 2:
        raise RequestError(f"a coordinate check needs at least two widths; got {tuple(widths)}.")
    recipes = [recipe_for_width(width) for width in widths]
    names: list[str] = []

    def named(one: Key[Array, ""]) -> None:
        problem, state = init(recipes[0], train, valid, outputs=outputs, classes=classes, key=one)
        names.extend(_activations(problem.model(state.parameters), train.inputs[:_ROWS]))

    eqx.filter_eval_shape(named, key)
    if len(names) < 2:
        raise RequestError("a coordinate check needs a network with hidden layers; this one has none.")
    many = jr.split(key, seeds)
    told = [_changes(recipe, (train, valid), (outputs, classes), updates, many) for recipe in recipes]
    changes = np.stack([np.asarray(one, np.float64).mean(axis=0) for one in told], axis=1)
    slopes = np.polyfit(np.log(np.asarray(widths, float)), np.log(changes.T), 1)[0]
    return CoordinateCheck(tuple(widths), tuple(names), changes, slopes)


def find_widths(check: CoordinateCheck, rule: str = "optimiser") -> tuple[Finding, ...]:
    """GW507: whether a rate tuned at one of these widths serves the others. `rule` is the path of what has the rate."""
    worst = int(np.argmax(np.abs(check.slopes)))
    slope, narrow, wide = float(check.slopes[worst]), check.widths[0], check.widths[-1]
    told = f"from {narrow} to {wide} units, {check.layers[worst]} changes in an update as the {slope:.2f}th power of "
    told += "the width"
    if check.steady:
        what, step = (
            f"{told}, the other layers less: a learning rate tuned on the narrow network serves the wide one.",
            "",
        )
    else:
        what = f"{told}: a learning rate tuned at one width does not serve another."
        step = (
            f"tune at the width that you will use, or let rates follow the width: --set {rule}=WidthTransfer "
            "--set model.initial=FanIn --set model.output_initial=OutputScaled"
        )
    slopes = dict(zip(check.layers, check.slopes.tolist(), strict=True))
    return (found("GW507", what, where="optimiser", next=step, slopes=slopes, steady=check.steady),)
