"""Modules of Flax as models: `flax.nnx` ones are already built, `flax.linen` ones are initialised from the key.

    recipe = gradwise.defaults.classification(model=MyLinenModule())
    recipe = gradwise.defaults.classification(model=MyNnxModule(rngs=nnx.Rngs(0)))

A Flax module sees a batch of one example. Statistics that it would update in a forward pass (batch normalisation) stay
as they are, because a network here is a function of its parameters: such modules are rejected.
"""

import inspect
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from ..runtime.errors import RequestError
from .contracts import AbstractModel

# What authors of Linen modules call the argument that turns dropout on, or off.
_TRAINING = ("train", "training", "is_training")
_NOT_TRAINING = ("deterministic", "eval_mode")


def _is_from(thing: Any, package: str) -> bool:
    return any(kind.__module__.startswith(package) for kind in type(thing).__mro__)


def is_flax(thing: Any) -> bool:
    """Whether this is a module of Flax; asking does not import it."""
    return _is_from(thing, "flax.nnx") or _is_from(thing, "flax.linen")


def _refuse_statistics(names: Any) -> None:
    raise RequestError(
        f"the Flax module keeps statistics that a forward pass updates ({names}): use layer or group normalisation, or "
        "`gradwise.Mlp(normalisation=gradwise.BatchNorm())`."
    )


class LinenNetwork(eqx.Module):
    """A Linen module with its parameters."""

    parameters: PyTree
    module: Any = eqx.field(static=True)

    def __call__(self, x: Float[Array, "..."], *, key: Key[Array, ""] | None = None) -> Float[Array, " k"]:
        taken = inspect.signature(type(self.module).__call__).parameters
        mode = {name: key is not None for name in _TRAINING if name in taken}
        mode |= {name: key is None for name in _NOT_TRAINING if name in taken}
        draws = None if key is None else {"dropout": key}
        found: Array = self.module.apply({"params": self.parameters}, x[None], rngs=draws, **mode)
        return found[0]


class LinenModel(AbstractModel):
    """A Linen module, initialised for the inputs of the data."""

    module: Any = eqx.field(static=True)

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> eqx.Module:
        parameters_key, draws = jax.random.split(key)
        variables = self.module.init({"params": parameters_key, "dropout": draws}, jnp.zeros((1, *inputs)))
        if others := sorted(set(variables) - {"params"}):
            _refuse_statistics(", ".join(others))
        return LinenNetwork(variables["params"], self.module)


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


class NnxNetwork(eqx.Module):
    """An NNX module as its parameters and the rest; the keys of its random streams as plain numbers."""

    parameters: PyTree
    draws: PyTree
    rest: PyTree
    graph: Any = eqx.field(static=True)
    keys: tuple[bool, ...] = eqx.field(static=True)

    def __call__(self, x: Float[Array, "..."], *, key: Key[Array, ""] | None = None) -> Float[Array, " k"]:
        from flax import nnx  # installed, since the model uses it

        leaves, structure = jax.tree.flatten(self.draws)
        for number in (number for number, is_key in enumerate(self.keys) if is_key):
            stored = jax.random.wrap_key_data(leaves[number])
            leaves[number] = stored if key is None else jax.random.fold_in(key, number)
        module: Any = nnx.merge(self.graph, self.parameters, jax.tree.unflatten(structure, leaves), self.rest)
        module.eval() if key is None else module.train()
        found: Array = module(x[None])
        return found[0]


def _nnx_network(module: Any) -> NnxNetwork:
    from flax import nnx

    parted: Any = nnx.split(module, nnx.Param, nnx.RngState, nnx.BatchStat, ...)
    graph, parameters, draws, statistics, rest = parted
    if jax.tree.leaves(statistics):
        _refuse_statistics("BatchStat")
    keys = tuple(map(_is_key, jax.tree.leaves(draws)))
    plain = jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else leaf, draws)
    return NnxNetwork(parameters, plain, rest, graph, keys)


class NnxModel(AbstractModel):
    """An NNX module, which is already built; training starts from its parameters."""

    network: NnxNetwork

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> eqx.Module:
        return self.network


def as_flax_model(module: Any) -> AbstractModel:
    """The spec of a module of Flax."""
    return LinenModel(module) if _is_from(module, "flax.linen") else NnxModel(_nnx_network(module))
