"""Networks padded to larger arrays, so that many sizes share one compiled program (row F4).

    pad(Mlp(widths=(100, 100)), (784,), lambda width: 256)                   two layers in arrays of 256 units
    pad(Mlp(widths=(100, 100)), (784,), lambda width: 256, deepest=3)        the same in three layers
    trimmed(network)                                                         a network in arrays of its own size

Units beyond the true width have weights 0, their outputs are masked, and nothing they hold is ever read. Layers
beyond the true depth have weights 0 and pass their input through. One of several activations can be selected by a
number at run time.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ..specs.contracts import AbstractModel
from ..specs.dataset import InputLayout
from ..specs.sparse.rows import Rows
from .activations import AbstractActivation, Gelu, HardTanh, Identity, Mish, Rectifier, Selu, Sigmoid, Softsign, Tanh
from .mlp import Mlp, MlpNetwork, NoNorm, build_network

# Activations that learn nothing and have a finite slope everywhere: all can be computed and one be taken.
SELECTABLE = (Tanh, Sigmoid, Rectifier, HardTanh, Softsign, Identity, Selu, Mish, Gelu)


class _Selected(AbstractActivation):
    """One of several activations, by a number."""

    choices: tuple[AbstractActivation, ...]
    place: Int[Any, ""]

    def __call__(self, a: Float[Array, "..."]) -> Float[Array, "..."]:
        return jax.lax.select_n(self.place, *(one(a) for one in self.choices))

    def gain(self) -> Any:
        return jnp.asarray([one.gain() for one in self.choices])[self.place]


class PaddedMlp(AbstractModel):
    """An `Mlp` in larger arrays. `true_widths` is read at run time: networks of one bucket share a program.

    With `deeper` the last of them may be 0: such a layer only passes its input through.
    """

    mlp: Mlp
    true_widths: Int[Any, " depth"]
    deeper: bool = eqx.field(static=True, default=False)

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> MlpNetwork:
        true = [self.true_widths[number] for number in range(len(self.mlp.widths))]
        return build_network(self.mlp, true, inputs, outputs, key, deeper=self.deeper)

    def for_inputs(self, layout: InputLayout | None) -> "PaddedMlp":
        return self  # the perceptron was told before it was padded

    def started(self, network: Any, inputs: Rows) -> Any:
        return self.mlp.started(network, inputs)


def _makes_residual(mlp: Mlp, inputs: tuple[int, ...], widths: tuple[int, ...]) -> bool:
    """Whether arrays of these widths could make or break a connection past a layer, which needs its input's width.

    It is known before the program is built only if all are alike.
    """
    fan_in = mlp.stage(inputs, jr.key(0))[1]
    return len(set(mlp.widths)) > 1 or fan_in in (*mlp.widths, *widths)


def bucket(width: int, *, coarse: bool = False, widest: int = 0) -> int:
    """The size of array for a layer of this width: few sizes for many widths, little of each unused.

    16, 64, then multiples of 64. With `coarse` 64, 256, then powers of two: on an accelerator size costs less. Where
    networks reach `widest` units, none is smaller than 256 there, and none larger than the widest.
    """
    if not coarse:
        return 16 if width <= 16 else -(-width // 64) * 64
    size = 64
    while size < width:
        size *= 4 if size == 64 else 2
    most = -(-widest // 64) * 64
    return min(max(size, 256), most) if width <= most else size


def pad(
    mlp: Mlp,
    inputs: tuple[int, ...],
    buckets: Callable[[int], int],
    *,
    deepest: int = 0,
    activations: tuple[AbstractActivation, ...] = (),
) -> AbstractModel:
    """The same network in arrays of bucket widths; unchanged if padding would alter its function.

    `deepest` also pads the number of layers, if all have one width and none treats its units as a whole (such as
    normalisation); with `activations`, one program serves all of them.
    """
    widths = tuple(buckets(width) for width in mlp.widths)
    if not mlp.widths or (mlp.residual and _makes_residual(mlp, inputs, widths)):
        return mlp
    if mlp.activation in activations:
        chosen = _Selected(activations, np.asarray(activations.index(mlp.activation), np.int32))
        mlp = dataclasses.replace(mlp, activation=chosen)
    alike = len(set(widths)) == 1 and not mlp.residual and isinstance(mlp.normalisation, NoNorm)
    missing = deepest - len(widths)
    deeper = alike and missing >= 0 and deepest > 1
    true = (*mlp.widths, *(0,) * missing) if deeper else mlp.widths
    larger = dataclasses.replace(mlp, widths=(*widths, *widths[:1] * missing) if deeper else widths)
    return PaddedMlp(larger, np.asarray(true, np.int32), deeper)


def _cut(array: Any, rows: int, columns: int | None = None) -> Any:
    return array[:rows] if columns is None else array[:rows, :columns]


def trimmed(network: MlpNetwork) -> MlpNetwork:
    """A padded network in arrays of its own size, ready to be saved; other networks unchanged."""
    layers = []
    columns: int | None = None
    for layer in network.layers:
        if layer.mask is None:
            return network
        rows = int(np.asarray(layer.mask.value).sum())
        if layer.absent is not None and rows == 0:
            continue
        wide = layer.weight.shape[1] if columns is None else columns  # beyond the first, which may be turned
        norm = jax.tree.map(lambda leaf, n=rows: leaf[:n], layer.norm)
        weight = _cut(layer.weight.T, rows).T if layer.turned else _cut(layer.weight, rows, wide)
        bias = _cut(layer.bias, rows)
        units = layer.activation
        if isinstance(units, _Selected):
            units = units.choices[int(np.asarray(units.place))]
        units = jax.tree.map(lambda leaf, n=rows: leaf[:n] if eqx.is_array(leaf) else leaf, units)
        own = {"weight": weight, "bias": bias, "norm": norm, "activation": units}
        layers.append(dataclasses.replace(layer, **own, mask=None, absent=None))
        columns = rows
    if columns is None:
        return network
    output = dataclasses.replace(network.output, weight=network.output.weight[:, :columns])
    return MlpNetwork(tuple(layers), output, network.inputs)
