"""Layers learned one after another, each on the codes of the one below, then fine-tuned together (row A1).

    layers = [learner("denoising", 1000)] * 3
    stack = pretrain(layers, dataset, key=key)                 # labels are not used
    stack.encode(inputs)                                       # features
    record, stack = fit_pretrained(recipe, dataset, layers, key=key)  # pre-train, add an output, train all of it

Each layer is trained by `fit`, with a recipe of its own: any learner whose network has `hidden_layers`, in any mix. A
recipe with a supervised criterion trains its layer with the labels, greedily, and its output is thrown away. Lower
layers are never trained again: their codes, of clean inputs, are computed once.

Layers of filters come first, each on the pooled map of the one below; dense layers read the last map laid flat.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from ..data.scaling import NoScaling
from ..models.convolution.auto_encoder import ConvolutionalAutoEncoder, ConvolutionalAutoEncoderNetwork
from ..models.convolution.network import ConvolutionalNetwork, ConvolutionLayer
from ..models.mlp import Layer, Linear, Mlp, MlpNetwork, dropout_of
from ..records.finding import Finding
from ..records.fit import Fit
from ..runtime import keys
from ..runtime.errors import RequestError
from ..runtime.memory import require_memory
from ..runtime.progress import silent
from ..specs.adapters import as_criterion
from ..specs.contracts import AbstractModel
from ..specs.dataset import Column, Dataset
from ..specs.fitted_scaler import FittedScaler
from ..specs.networks import Network, as_network
from ..specs.paths import knobs
from ..specs.recipe import Recipe
from ..specs.sparse.rows import Rows, SparseRows, as_csr, is_csr
from ..training.loop import RunOptions
from ..training.predictor import outputs_of, scaled_for
from ..training.prepare import sparse_slots, split_labelled
from ..training.train import train as train_network
from .layer_recipes import kind_of_layer
from .pool import pool_of

_CHUNK = 4096


StackedLayer = Layer | ConvolutionLayer
StackedLayers = tuple[StackedLayer, ...]


def run_layers(layers: StackedLayers, x: Rows) -> Float[Array, "..."]:
    """What the top layer gives: a map with its channels, if it is one of filters, or a row."""
    h: Any = x
    for layer in layers:
        if isinstance(layer, ConvolutionLayer):
            h = layer(h[..., None] if h.ndim == 2 else h, key=None)
        else:
            h = layer(h if isinstance(h, SparseRows) else jnp.ravel(h), key=None)
    return h


class Encoder(Network):
    """Hidden layers without an output: an input's features."""

    layers: StackedLayers

    def __call__(self, x: Rows, *, key: Key[Array, ""] | None = None) -> Float[Array, " code"]:
        return jnp.ravel(run_layers(self.layers, x))

    @property
    def hidden_layers(self) -> tuple[Layer, ...]:
        return tuple(layer for layer in self.layers if isinstance(layer, Layer))

    @property
    def takes_sparse(self) -> bool:
        first = self.layers[0]
        return isinstance(first, Layer) and first.turned


@eqx.filter_jit
def _encode(layers: PyTree, inputs: Rows) -> Float[Array, "n ..."]:
    return jax.vmap(lambda x: run_layers(layers, x))(inputs)


def encode_inputs(layers: StackedLayers, inputs: Any) -> Array:
    """The codes of scaled inputs, on the device, in chunks of one shape; those of filters are maps."""
    if is_csr(inputs):
        return jnp.asarray(outputs_of(Encoder(layers), inputs), jnp.float32)
    parts = []
    for start in range(0, inputs.shape[0], _CHUNK):
        rows = jnp.asarray(inputs[start : start + _CHUNK])
        missing = _CHUNK - rows.shape[0] if inputs.shape[0] > _CHUNK else 0
        rows = jnp.concatenate([rows, jnp.zeros((missing, *rows.shape[1:]), rows.dtype)]) if missing else rows
        parts.append(_encode(layers, rows)[: rows.shape[0] - missing])
    return jnp.concatenate(parts)


def hidden_layers(network: Any, level: int) -> StackedLayers:
    """The hidden layers of a learned network; raises an error if it has none."""
    if isinstance(network, ConvolutionalAutoEncoderNetwork):
        return (network.layer,)
    if not as_network(network).hidden_layers:
        raise RequestError(
            f"layer {level + 1} is a {type(network).__name__}, which has no hidden layers, so it cannot be "
            "stacked. Use an auto-encoder, a Boltzmann machine or a predictive sparse decomposition."
        )
    return tuple(network.hidden_layers)


_PATH = re.compile(r"(--set |`)(?=(?:split|scaler|batches|model|criterion|optimiser|stopping)\b)")


def _of_layer(finding: Finding, level: int, recipe: Recipe) -> Finding:
    """A finding of one layer's training: which layer, and its knobs as they are called in the whole recipe."""
    place = f"model.layers.{level}"
    units = widths_of(recipe)[-1]
    step = finding.next.replace("--resume, ", "")  # a layer that others stand on is not trained further
    return dataclasses.replace(
        finding,
        what=f"layer {level + 1} ({kind_of_layer(recipe)}, {units} units): {finding.what}",
        next=_PATH.sub(rf"\1{place}.", step),
        where=f"{place}.{finding.where}" if finding.where else place,
    )


@dataclasses.dataclass(frozen=True)
class Stack:
    """Learned layers, bottom up. `networks` are the learners as they were trained, `records` how that went."""

    scaler: FittedScaler
    networks: tuple[Any, ...]
    records: tuple[Fit, ...]

    @property
    def layers(self) -> StackedLayers:
        return tuple(layer for level, network in enumerate(self.networks) for layer in hidden_layers(network, level))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found while each layer was learned, under the layer's name."""
        return tuple(
            _of_layer(finding, level, record.recipe)
            for level, record in enumerate(self.records)
            for finding in record.findings
        )

    def encode(self, inputs: Any) -> np.ndarray:
        """The features of raw inputs."""
        found = np.asarray(encode_inputs(self.layers, scaled_for(Encoder(self.layers), self.scaler, inputs)))
        return found.reshape(len(found), -1)

    def network(self, outputs: int, mlp: Mlp, *, key: Key[Array, ""]) -> MlpNetwork | ConvolutionalNetwork:
        """The layers with a new output on top; dropout and the output's initial weights as `mlp` says."""
        return with_output(self.layers, outputs, mlp, key=key, inputs=self.records[0].predictor.shape)


def with_output(
    layers: StackedLayers, outputs: int, mlp: Mlp, *, key: Key[Array, ""], inputs: tuple[int, ...] = ()
) -> MlpNetwork | ConvolutionalNetwork:
    """A network whose hidden layers begin as these. The size of a layer of filters depends on that of the `inputs`."""
    noise = dropout_of(mlp)
    dense = tuple(dataclasses.replace(layer, dropout=noise) for layer in layers if isinstance(layer, Layer))
    filters = [layer for layer in layers if isinstance(layer, ConvolutionLayer)]
    if filters:
        filters[-1] = dataclasses.replace(filters[-1], dropout=noise)
    fan_in = layers[-1].bias.shape[-1]
    if filters:
        fan_in = jax.eval_shape(Encoder(layers), jax.ShapeDtypeStruct(inputs, jnp.float32)).shape[0]
    weight = mlp.output_initial.draw(outputs, fan_in, 1.0, key=key)
    output = Linear(weight, jnp.zeros(outputs), mlp.output_activation)
    return ConvolutionalNetwork(tuple(filters), dense, output, None, 2) if filters else MlpNetwork(dense, output)


class Pretrained(AbstractModel):
    """A network whose layers were learned one by one: what a record says of its model.

    `mlp` says how the dense layers are fine-tuned, and the output; layers of filters keep their form.
    """

    layers: tuple[Recipe, ...]
    mlp: Mlp

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> Any:
        raise RequestError(
            "a pre-trained network needs its layers trained first: call `gw.fit_pretrained(recipe, dataset, layers, "
            "key=key)` with an `Mlp` as the recipe's model, or use `gradwise fit --pretrain`."
        )


def _columns(train: Dataset, width: int, level: int) -> tuple[Column, ...]:
    """What the inputs of a level are: those of the first are the table's own, scaled; codes have no names."""
    if level or not train.columns:
        return ()
    if len(train.columns) == width:  # scaled: a category is a number now
        return tuple(Column(one.name, "pixel" if one.kind == "pixel" else "number") for one in train.columns)
    return tuple(Column(f"input {number + 1}") for number in range(width))


def _dataset(below: Any, train: Dataset, recipe: Recipe, level: int) -> Dataset:
    """The codes of a level as data for the next: with targets only where the layer's criterion looks at them.

    A supervised layer gets the rows that have a target.
    """
    columns = _columns(train, below.shape[1], level)
    below = below if is_csr(below) else np.asarray(below)
    codes = dataclasses.replace(train, inputs=below, columns=columns, test=None)
    learns_from = as_criterion(recipe.criterion).learns_from
    if learns_from == "inputs":
        return codes.without_targets()
    if learns_from == "both" or train.task.kind == "inputs" or (known := train.labelled).all():
        return codes
    if not known.any():
        raise RequestError(
            f"layer {level + 1} is supervised, but no row has a target. Use unsupervised layers, or name the target."
        )
    return codes.take(np.flatnonzero(known))


def widths_of(recipe: Recipe) -> tuple[int, ...]:
    """The units of each hidden layer of a learner."""
    known = {path: value for path, _, value in knobs(recipe.model)}
    return tuple(known.get("widths", (known.get("units", 1),)))


def code_shape(recipe: Recipe, inputs: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what the next layer reads."""
    if isinstance(recipe.model, ConvolutionalAutoEncoder):
        return recipe.model.pooled_shape(inputs)
    return (int(widths_of(recipe)[-1]),)


def check_layer_memory(recipe: Recipe, inputs: tuple[int, ...], rows: int) -> None:
    """Raises an error if the weights or codes of a layer do not fit into memory, before any training."""
    shape = code_shape(recipe, inputs)
    units, width = math.prod(shape), math.prod(inputs)
    # Weights, gradients and an optimiser's means; filters have few, and no more of their maps than there are places.
    weights = 8 * (width if len(shape) == 1 else 64) * units
    needed = 4 * (weights + rows * units)
    what = f"{units} code units over {width} inputs and {rows} rows need about"
    require_memory(needed, what, "Use fewer units or fewer rows.")


def _scaled(first: Recipe, train: Dataset, scaler: FittedScaler) -> Any:
    """Scaled inputs: a sparse matrix where the first layer learns from sparse rows, else dense rows."""
    sparse = scaler.keeps_zeros() and sparse_slots(first, (train,))
    return scaler.apply_sparse(as_csr(train.inputs)) if sparse else scaler.apply(train.inputs)


Begin = Callable[[int, int], None]


def pretrain_layers(
    layers: Sequence[Recipe],
    train: Dataset,
    scaler: FittedScaler,
    *,
    key: Key[Array, ""],
    class_weight: Any = None,
    options: RunOptions = RunOptions(),
    begin: Begin = silent,
) -> Stack:
    """Learns layer after layer on the rows given; each layer's recipe splits them again for a validation part.

    Layers whose criterion looks at targets learn from the rows that have one, in which classes count by `class_weight`.
    Each layer may take `options.max_seconds`. Ctrl-C in a layer is passed on as such, its checkpoint kept: nothing can
    be built on a layer that is half learned.
    """
    if not layers:
        raise RequestError("give at least one layer to pre-train.")
    below = _scaled(layers[0], train, scaler)
    networks: list[Any] = []
    records: list[Fit] = []
    for level, recipe in enumerate(layers):
        check_layer_memory(recipe, below.shape[1:], len(train))
        folder = None if options.folder is None else options.folder / f"layer-{level + 1}"
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        codes = _dataset(below, train, recipe, level)
        begin(level, len(codes))
        record = train_network(
            dataclasses.replace(recipe, scaler=NoScaling()),
            codes,
            key=jax.random.fold_in(keys.named(key, "pretraining"), level),
            class_weight=None if codes.task.kind == "inputs" else class_weight,
            options=dataclasses.replace(options, folder=folder, settled=True),
        )
        if record.outcome.name == "interrupted":
            raise KeyboardInterrupt
        if record.outcome.failed:
            raise RequestError(
                f"layer {level + 1} {record.outcome}: the layers above it cannot be learned. "
                "Divide its learning rate by 3."
            )
        network = record.predictor.network
        networks.append(network)
        records.append(record)
        if level + 1 < len(layers):
            below = encode_inputs(hidden_layers(network, level), below)
    return Stack(scaler, tuple(networks), tuple(records))


def pretrain(
    layers: Sequence[Recipe], dataset: Dataset, *, key: Key[Array, ""], options: RunOptions = RunOptions()
) -> Stack:
    """Learns a stack on all rows of a data set; the scaler is that of the first layer's recipe."""
    if not layers:
        raise RequestError("give at least one layer to pre-train.")
    scaler = layers[0].scaler.fit(dataset.inputs, dataset.columns)
    return pretrain_layers(layers, dataset, scaler, key=key, options=options)


def fit_pretrained(
    recipe: Recipe,
    dataset: Dataset,
    layers: Sequence[Recipe],
    *,
    key: Key[Array, ""],
    metric: str | None = None,
    class_weight: Any = None,
    options: RunOptions = RunOptions(),
    unlabelled: Dataset | None = None,
    begin: Begin = silent,
) -> tuple[Fit, Stack]:
    """Pre-trains on the training part alone, then trains the whole network by `recipe`, whose model is an `Mlp`.

    Rows of the data set without a target, and those of `unlabelled`, serve unsupervised layers only
    (`gradwise.pretraining.pool`); the findings say how many. The record's model is a
    `Pretrained`, which says how its layers were learned. `options.max_seconds` is for all of it: no layer takes more
    than its even share, and the whole network what is left. `begin` is called as each layer begins, and once more.
    """
    if not isinstance(recipe.model, Mlp):
        raise RequestError(
            f"pre-trained layers are fine-tuned as an Mlp says; the recipe's model is a {type(recipe.model).__name__}."
        )
    criterion = as_criterion(recipe.criterion)
    known, labelled, spare = dataset.labelled, dataset, None
    if not known.all():
        labelled = dataclasses.replace(dataset.take(np.flatnonzero(known)), test=dataset.test)
        spare = dataset.take(np.flatnonzero(~known))
    train, valid, test = split_labelled(recipe.split, criterion, labelled, key=keys.named(key, "split"))
    pool = pool_of(train, [part for part in (valid, test) if part is not None], spare, unlabelled)
    scaler = recipe.scaler.fit(train.inputs, train.columns)
    share = dataclasses.replace(options, max_seconds=options.max_seconds / (len(layers) + 1), monitor=None)
    stack = pretrain_layers(layers, pool.rows, scaler, key=key, class_weight=class_weight, options=share, begin=begin)
    spent = sum(one.seconds for one in stack.records)
    begin(len(layers), len(train))
    network = stack.network(dataset.task.outputs, recipe.model, key=keys.named(key, "output"))
    record = train_network(
        dataclasses.replace(recipe, model=network),
        labelled,
        key=key,
        metric=metric,
        class_weight=class_weight,
        options=dataclasses.replace(options, max_seconds=options.max_seconds - spent),
    )
    told = dataclasses.replace(recipe, model=Pretrained(tuple(layers), recipe.model))
    findings = (*record.findings, *stack.findings, *pool.findings(layers))
    return dataclasses.replace(record, recipe=told, findings=findings, seconds=record.seconds + spent), stack
