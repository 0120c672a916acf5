"""Networks: called on one example or on many, and what they may offer beyond their outputs.

Any callable module is a network. One that offers more is a `Network`, and says what:

    class MyAutoEncoder(gradwise.Network):
        offers = ("decode",)                    so that `Reconstruction` can train it
        def __call__(self, x): ...
        def decode(self, code): ...
"""

import inspect
import math
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from ..runtime.errors import RequestError
from .sparse.rows import Rows

_CHUNK = 4096  # rows scored at once: large enough to be fast, small enough for any validation set
_NUMBERS = 2**19  # of pictures scored at once: what a layer of filters reads and gives is a hundred times as much


class Network(eqx.Module):
    """A network that offers more than its output: each ability has a default."""

    # The methods that criteria and optimisers may require, by name.
    offers: ClassVar[tuple[str, ...]] = ()

    @property
    def hidden_layers(self) -> tuple[Any, ...]:
        """The way from an input to its features, as layers of a perceptron."""
        return ()

    @property
    def filters(self) -> Float[Array, "units inputs"] | None:
        """What each unit of the first layer weighs its inputs with."""
        return self.hidden_layers[0].weight if self.hidden_layers else None

    @property
    def filter_shape(self) -> tuple[int, ...]:
        """The shape of what such a unit sees, where that is a part of an example: rows, columns, channels."""
        return ()

    @property
    def takes_sparse(self) -> bool:
        """Whether an example may be a `SparseRows`."""
        return False

    @property
    def column_tables(self) -> tuple[Any, ...]:
        """Its parameters with a row for each column of sparse rows, which reads a batch's columns alone; else none."""
        return ()

    @property
    def needs_calibration(self) -> bool:
        """Whether it has batch statistics, which `calibrate` measures."""
        return False

    def calibrate(self, inputs: Rows) -> "Network":
        """A copy whose batch statistics are those of these inputs."""
        return self


def as_network(module: Any) -> Network:
    """The module itself if it is a `Network`, else one that offers nothing, to ask instead of it."""
    return module if isinstance(module, Network) else Network()


def require_methods(asker: str, network: Any, names: tuple[str, ...], model: str) -> None:
    """Refuses, in the asker's name, a network that does not offer these methods; `model` is one that does."""
    lacking = [name for name in names if name not in as_network(network).offers]
    if lacking:
        raise RequestError(
            f"{asker} needs a network with `{lacking[0]}`, which {type(network).__name__} lacks. Use the model {model}."
        )


def deterministic(model: Any) -> Any:
    """The network with the layers of Equinox that act otherwise in training (dropout) switched to their other mode."""
    nodes = jax.tree.leaves(model, is_leaf=lambda node: hasattr(node, "inference"))
    return eqx.nn.inference_mode(model) if any(hasattr(node, "inference") for node in nodes) else model


def apply(model: Callable[..., Array], example: Rows, key: Key[Array, ""] | None) -> Array:
    """Calls a network on one example, with the key where the network takes one; without a key it is deterministic."""
    model = deterministic(model) if key is None else model
    if "key" in inspect.signature(model).parameters:
        return model(example, key=key)
    return model(example)


def apply_batch(model: Callable[..., Array], inputs: Rows, key: Key[Array, ""] | None) -> Array:
    """Calls a network on many examples, each with a key of its own; `axis_name` lets it see the batch."""
    if key is None:
        return jax.vmap(lambda x: apply(model, x, None), axis_name="batch")(inputs)
    keys = jax.random.split(key, inputs.shape[0])
    return jax.vmap(lambda x, k: apply(model, x, k), axis_name="batch")(inputs, keys)


def score_in_chunks(
    scores: Callable[[Any, Array], tuple[Array, Array]], inputs: Rows, targets: Array, *, most: int = _CHUNK
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Score and loss of every example, in chunks of one shape; the last chunk overlaps the one before."""
    count = inputs.shape[0]
    room = _CHUNK if inputs.ndim == 2 else max(64, _NUMBERS // max(1, math.prod(inputs.shape[1:])))
    chunk = min(count, most, room)

    def body(number: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
        start = jnp.minimum(number * chunk, count - chunk)
        some = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, chunk), (inputs, targets))
        part = scores(*some)
        write = jax.lax.dynamic_update_slice_in_dim
        return write(found[0], part[0], start, 0), write(found[1], part[1], start, 0)

    zeros = jnp.zeros(count)
    return jax.lax.fori_loop(0, -(-count // chunk), body, (zeros, zeros))
