"""Layers of a finished run as the lower layers of a new network (rows A9, G7): what one task taught serves another.

    gw.fit("few.npz", from_="runs/many", freeze=1)            with the recipe of that run
    replace(recipe, model=Transferred("runs/many", layers=2), scaler=ScalerOf("runs/many"))

The layers see inputs as they did: columns in the same order, scaled by the earlier run's scaler. `slower_below` holds
the lowest of them still and lets the others move more slowly than the new output.
"""

import dataclasses
import functools
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Key

from ..models.activations import Identity
from ..models.convolution.auto_encoder import ConvolutionalAutoEncoderNetwork
from ..models.convolution.network import ConvolutionalNetwork
from ..models.input_stage import InputStage
from ..models.mlp import Layer, Linear, Mlp, MlpNetwork, dropout_of
from ..optimisers.wrappers.slower_below import SlowerBelow, within_averages
from ..records.finding import Finding
from ..runtime.errors import RequestError
from ..specs.contracts import AbstractModel, AbstractOptimiser, AbstractScaler
from ..specs.dataset import Column, Dataset
from ..specs.fitted_scaler import FittedScaler
from ..specs.knobs import switch
from ..specs.networks import as_network
from ..specs.paths import parts
from ..training.model_files import MODEL, load_predictor, load_used_rows
from ..training.predictor import Predictor
from .stack import StackedLayers


@functools.lru_cache(maxsize=4)
def _load(path: Path, changed: int) -> Predictor:
    """The network of a run's file as it was at a moment."""
    predictor = load_predictor(path)[0]
    if not isinstance(predictor, Predictor):
        raise RequestError(
            f"{path.parent} holds a committee of {len(predictor.members)} networks, and layers can be taken from a "
            "single one: name the run of a gradwise fit."
        )
    if not lower_layers(predictor)[1]:
        raise RequestError(
            f"the network of {path.parent} is a {type(predictor.network).__name__}, whose layers cannot be stacked: "
            "name a run that trained an `Mlp`, a `Convolutional`, an auto-encoder or a Boltzmann machine."
        )
    return predictor


def predictor_of(source: str) -> Predictor:
    """The network of a finished run, with its scaler; raises in one line where there is none to take layers from."""
    path = Path(source) / MODEL
    if not path.is_file():
        raise RequestError(f"{source} has no {MODEL}: name the folder of a finished run.")
    return _load(path.resolve(), path.stat().st_mtime_ns)


def as_filters(network: Any) -> ConvolutionalNetwork | None:
    """A network with layers of filters, an auto-encoder's as one without an output; None where there are none."""
    if isinstance(network, ConvolutionalAutoEncoderNetwork):
        nothing = Linear(jnp.zeros((0, 0)), jnp.zeros(0), Identity())
        return ConvolutionalNetwork((network.layer,), (), nothing, None, len(network.shape) - 1)
    return network if isinstance(network, ConvolutionalNetwork) else None


def lower_layers(predictor: Predictor) -> tuple[InputStage | None, StackedLayers]:
    """The input stage of a network, if it has one, and its hidden layers, bottom up: those of filters first."""
    filters = as_filters(predictor.network)
    if filters is not None:
        return None, (*filters.convolutions, *filters.layers)
    layers = as_network(predictor.network).hidden_layers
    stage = layers[0] if layers and isinstance(layers[0], InputStage) else None
    hidden = layers[1:] if stage is not None else layers
    return stage, hidden if all(isinstance(layer, Layer) for layer in hidden) else ()


def count_taken(source: str, layers: int) -> int:
    """How many layers are taken: all for 0; raises if the run has fewer."""
    there = len(lower_layers(predictor_of(source))[1])
    if layers > there:
        raise RequestError(f"{source} has {there} hidden layers, so {layers} cannot be taken or frozen.")
    return layers or there


def filters_below(
    earlier: ConvolutionalNetwork, count: int, inputs: tuple[int, ...], outputs: int, above: Mlp, *, key: Key[Array, ""]
) -> ConvolutionalNetwork:
    """A network of filters that begins with the lowest `count` layers of another; the layers `above` them are new."""
    noise, stages = dropout_of(above), len(earlier.convolutions)
    filters = [dataclasses.replace(layer, dropout=None) for layer in earlier.convolutions[:count]]
    filters[-1] = dataclasses.replace(filters[-1], dropout=noise)
    dense = tuple(dataclasses.replace(layer, dropout=noise) for layer in earlier.layers[: max(0, count - stages)])
    lower = dataclasses.replace(earlier, convolutions=tuple(filters), layers=dense)
    width = jax.eval_shape(lower.features, jax.ShapeDtypeStruct(inputs, jnp.float32)).shape
    top = above.build(width, outputs, key=key)
    return dataclasses.replace(lower, layers=(*dense, *top.layers), output=top.output)


class Transferred(AbstractModel):
    """A network whose lower layers begin as those of a finished run; layers above them and the output are new.

    Of a network of filters the layers of filters come first, each counted as one, then the dense layers above them.
    """

    source: str = switch("", row="A9", kind="model", about="the folder of the run whose layers are taken")
    layers: int = switch(
        0, allowed="[0, inf)", row="A9", kind="model", about="hidden layers that are taken, from the lowest; 0: all"
    )
    above: Mlp = Mlp(widths=(), dropout=0.0)

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> MlpNetwork | ConvolutionalNetwork:
        earlier = predictor_of(self.source)
        stage, hidden = lower_layers(earlier)
        expected = jax.eval_shape(earlier.scaler, jnp.zeros(earlier.shape)).shape
        if math.prod(inputs) != math.prod(expected):
            raise RequestError(
                f"the layers of {self.source} take {math.prod(expected)} inputs, but there are {math.prod(inputs)}: "
                f"give data with the same columns, and keep its scaler, `ScalerOf({self.source!r})`."
            )
        count = count_taken(self.source, self.layers)
        key = jr.fold_in(key, count)
        filters = as_filters(earlier.network)
        if filters is not None:
            return filters_below(filters, count, expected, outputs, self.above, key=key)
        taken = hidden[:count]
        top = self.above.build((taken[-1].weight.shape[0],), outputs, key=key)
        lower = [
            dataclasses.replace(layer, dropout=dropout_of(self.above)) for layer in taken if isinstance(layer, Layer)
        ]
        return MlpNetwork((*lower, *top.layers), top.output, stage)


class ScalerOf(AbstractScaler):
    """The scaler of a finished run as it was fitted there, for data with the same columns."""

    source: str = switch("", row="A9", kind="model", about="the folder of the run whose scaler is taken")

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        earlier = predictor_of(self.source)
        shape = tuple(inputs.shape[1:])
        if shape != earlier.shape:
            raise RequestError(
                f"the examples have shape {shape}, but those of {self.source} had {earlier.shape}: its layers need "
                "inputs of the same form."
            )
        for own, theirs in zip(columns, earlier.columns, strict=bool(columns and earlier.columns)):
            if (own.name, own.kind) != (theirs.name, theirs.kind):
                raise RequestError(
                    f"column `{own.name}` ({own.kind}) stands where {self.source} had `{theirs.name}` "
                    f"({theirs.kind}): give the same columns in the same order."
                )
            if own.categories != theirs.categories:
                differ = sorted(set(own.categories) ^ set(theirs.categories))[:3]
                raise RequestError(
                    f"column `{own.name}` has other categories than in {self.source} ({', '.join(differ)}): its layers "
                    "know only theirs. Drop the column in both runs, or bring its values in line."
                )
        return earlier.scaler


def find_seen_rows(model: Any, part: Dataset) -> tuple[Finding, ...]:
    """A warning if the run whose layers are taken learned from rows that are to judge this one."""
    if not isinstance(model, Transferred):
        return ()
    used = load_used_rows(Path(model.source) / MODEL)
    if used is None or not (seen := used.among(part.inputs)).any():
        return ()
    what = f"{model.source}, whose layers are taken, was trained on {seen.sum():,} of the {len(seen):,} test rows: "
    what += "the test error is optimistic."
    return (Finding("warning", what, row="E2", next="give other rows with --test.", code="GW201", where="test set"),)


def slower_below(optimiser: AbstractOptimiser, source: str, *, layers: int = 0, freeze: int = 0) -> AbstractOptimiser:
    """The optimiser with the layers taken slower than the new ones, and the lowest of them held still."""
    taken = count_taken(source, layers)
    if freeze > taken:
        raise RequestError(f"{taken} hidden layers are taken from {source}, so {freeze} cannot be frozen.")
    if any(isinstance(part, SlowerBelow) for _, part in [("", optimiser), *parts(optimiser)]):
        return optimiser
    return within_averages(optimiser, layers=taken, frozen=freeze)
