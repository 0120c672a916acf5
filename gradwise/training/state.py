"""What a run holds: the `Problem`, which does not change, and the `State`, one pytree, which does.

problem, state = init(recipe, train, valid, outputs=10, key=key)
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from ..core import keys
from ..core.adapt import as_criterion, as_model
from ..core.recipe import Recipe
from ..core.tree import trainable


class Examples(eqx.Module):
    """Scaled examples on the device, there once for the whole run. Without weights all count alike."""

    inputs: Float[Array, "n ..."]
    targets: Array
    weights: Float[Array, " n"] | None = None

    def __len__(self) -> int:
        return int(self.inputs.shape[0])


class Problem(eqx.Module):
    """What one run is about. `rest` is the model without its parameters; `classes` is 0 where there are none.

    With `last`, updates from that number on change nothing: in a population each member ends at an age of its own.
    """

    recipe: Recipe
    rest: PyTree
    train: Examples
    valid: Examples
    key: Key[Array, ""]
    classes: int = eqx.field(static=True)
    last: Int[Array, ""] | None = None

    @property
    def batch_size(self) -> int:
        return min(self.recipe.batches.size, len(self.train))

    @property
    def updates_per_epoch(self) -> int:
        return -(-len(self.train) // self.batch_size)

    @property
    def interval_updates(self) -> int:
        """Updates between validations: enough to visit at least as many examples as validation reads."""
        examples = self.recipe.stopping.interval_examples(len(self.train), len(self.valid))
        return max(1, -(-examples // self.batch_size))

    @property
    def limit_updates(self) -> int:
        """Updates after which the run ends at the latest."""
        count = len(self.train)
        limit = self.recipe.stopping.limit_examples(count)
        ends = self.recipe.batches.limit_examples(count)
        return self.updates_for(limit if ends is None else min(limit, ends))

    def updates_for(self, examples: int) -> int:
        """Updates that visit at least this many examples."""
        epochs, part = divmod(examples, len(self.train))
        return max(1, epochs * self.updates_per_epoch + -(-part // self.batch_size))

    def model(self, parameters: PyTree) -> Any:
        """The network with these parameters."""
        return eqx.combine(parameters, self.rest)


class State(eqx.Module):
    """All that changes. `best` is the best model so far: its parameters and measured buffers."""

    parameters: PyTree
    optimiser: PyTree
    stopping: PyTree
    best: PyTree
    update: Int[Array, ""]


@eqx.filter_jit
def start(
    recipe: Recipe, shape: tuple[int, ...], outputs: int, sizes: tuple[int, int], key: Key[Array, ""]
) -> tuple[State, Any]:
    """The state before the first update, and the network it belongs to."""
    network = recipe.model.build(shape, outputs, key=keys.named(key, "model"))
    parameters, _ = trainable(network)
    arrays = eqx.filter(network, eqx.is_array)
    state = State(
        parameters=parameters,
        optimiser=recipe.optimiser.build().init(parameters),
        stopping=recipe.stopping.init(*sizes),
        best=jax.tree.map(jnp.array, arrays),
        update=jnp.zeros((), jnp.int32),
    )
    # Weakly typed scalars would come back strongly typed, and the second interval would be compiled anew.
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), state), network


def _exchanged(recipe: Recipe, **parts: Any) -> Recipe:
    """The recipe with other things in the places of parts, unchecked: None is no part."""
    before = tuple(getattr(recipe, name) for name in parts)
    return eqx.tree_at(
        lambda r: tuple(getattr(r, name) for name in parts),
        recipe,
        tuple(parts.values()),
        is_leaf=lambda node: any(node is one for one in before),
    )


def for_building(recipe: Recipe) -> Recipe:
    """What making the network takes: the user's own pieces as parts; split and scaler have done their work."""
    model, criterion = as_model(recipe.model), as_criterion(recipe.criterion)
    return _exchanged(recipe, model=model, criterion=criterion, split=None, scaler=None)


def for_training(recipe: Recipe) -> Recipe:
    """What the intervals take. What has done its work, left in, would make a program of its own of each value."""
    return _exchanged(recipe, model=None)


def init(
    recipe: Recipe, train: Examples, valid: Examples, *, outputs: int, classes: int = 0, key: Key[Array, ""]
) -> tuple[Problem, State]:
    """Builds the network and the state before the first update."""
    recipe = for_building(recipe)
    shape = tuple(train.inputs.shape[1:])
    state, network = start(recipe, shape, outputs, (len(train), len(valid)), key)
    _, rest = trainable(network)
    return Problem(for_training(recipe), rest, train, valid, keys.named(key, "training"), classes), state
