"""Feature learning and pre-training from the command line: their recipes, and how they are run.

    --learner rbm:500                      one learner of features, as recommended by `layer_recipes`
    --pretrain denoising:1000x3            layers, then the whole network
    --set layers.stopping.epochs=10        a knob of every layer; of one: model.layers.0.stopping.epochs
    --from runs/other --freeze 1           layers of another run, the lowest held still

Inputs that lie in [0, 1] after scaling are treated as probabilities; others get squared errors and Gaussian units.
"""

import dataclasses
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .. import defaults
from ..data.splits import HoldOut
from ..models.convolution.convolutional import Convolutional
from ..models.input_stage import Direct
from ..models.mlp import Mlp
from ..optimisers.wrappers.slower_below import all_alike
from ..pretraining.layer_recipes import FILTERS, SCALER, kind_of_layer, parse_layers, recipes_of_layers
from ..pretraining.stack import Pretrained, Stack, check_layer_memory, code_shape, fit_pretrained, widths_of
from ..pretraining.transfer import ScalerOf, Transferred, predictor_of, slower_below
from ..records.evidence.fit_evidence import FeatureEvidence, PretrainedLayer
from ..records.fit import Fit, read_fit
from ..records.score_scale import ScoreScale
from ..runtime.errors import RequestError
from ..specs.dataset import Dataset
from ..specs.recipe import Recipe
from ..specs.sparse.rows import is_csr
from ..training.loop import RunOptions
from .progress import AbstractProgress
from .requests.assignments import Assignment, resolve

_CHUNK = 4096
_SHOWN_POINTS = 200
_EVERY = "layers."


def _is_within_unit(scaler: Any, dataset: Dataset) -> bool:
    """Whether scaled inputs lie in [0, 1]. Uses only their range and starts no device."""
    fitted = scaler.fit(dataset.inputs, dataset.columns)
    if is_csr(dataset.inputs) and fitted.keeps_zeros():
        entries = fitted.apply_sparse(dataset.inputs).data
        return bool(entries.min(initial=0.0) >= 0.0 and entries.max(initial=0.0) <= 1.0)
    for start in range(0, len(dataset), _CHUNK):
        rows = np.asarray(fitted.apply(dataset.inputs[start : start + _CHUNK]))
        if rows.min() < 0.0 or rows.max() > 1.0:
            return False
    return True


def takes_probabilities(assignments: Iterable[Assignment], dataset: Dataset | None) -> bool:
    """Whether the scaled inputs can be treated as probabilities; without data, by the default scaler."""
    if dataset is None:
        return True
    asked = [item for item in assignments if item.path.partition(".")[0] == "scaler"]
    return _is_within_unit(resolve(defaults.features(scaler=SCALER), asked).recipe.scaler, dataset)


def features_recipe(text: str | None, unit: bool, **parts: Any) -> Recipe:
    """The recipe of the learner named by `--learner`."""
    kind, units = parse_layers(text)[0] if text else defaults.FEATURES
    return defaults.features(kind, units, unit_range=unit, **parts)


def pretrained_recipe(kind: str, text: str, unit: bool, **parts: Any) -> Recipe:
    """The recipe of a network whose layers are pre-trained."""
    if kind == "inputs":
        raise RequestError(
            f"--pretrain {text}: fine-tuning needs a target, and the data have none. Name it with --target, or learn "
            "features alone with --unsupervised."
        )
    layers = tuple(recipes_of_layers(text, unit, kind))
    dense = tuple(units for layer, units in parse_layers(text) if layer != FILTERS)
    recipe = defaults.fine_tuning(kind, dense, **parts)
    return dataclasses.replace(recipe, model=Pretrained(layers, recipe.model))


def transferred_recipe(kind: str, source: str, freeze: int, **parts: Any) -> Recipe:
    """The recipe of a network on the layers of another run: that run's own, as far as it suits the kind of task."""
    predictor_of(source)  # refuses what has no layers to take
    earlier = read_fit(Path(source))
    recipe = defaults.of_kind(kind, **parts) if earlier.task == "inputs" else earlier.recipe
    recipe = dataclasses.replace(recipe, optimiser=all_alike(recipe.optimiser))  # that run may stand on another
    if earlier.task not in (kind, "inputs"):
        recipe = dataclasses.replace(recipe, criterion=defaults.of_kind(kind).criterion)
    own = {"split": HoldOut(), "scaler": ScalerOf(source), **parts}
    above = dataclasses.replace(_network_above(recipe), widths=())
    own.setdefault("model", Transferred(source, above=above))
    recipe = dataclasses.replace(recipe, **own)
    return slowed(recipe, source, freeze)


def slowed(recipe: Recipe, source: str, freeze: int) -> Recipe:
    """The recipe with an optimiser that moves the layers of the other run less, whichever optimiser was chosen."""
    layers = recipe.model.layers if isinstance(recipe.model, Transferred) else 0
    return dataclasses.replace(recipe, optimiser=slower_below(recipe.optimiser, source, layers=layers, freeze=freeze))


def _network_above(recipe: Recipe) -> Mlp:
    """A perceptron with the activation, dropout and parametrisation of a recipe's network."""
    model: Any = recipe.model
    for name in ("mlp", "above"):
        model = getattr(model, name, model)
    model = model.perceptron() if isinstance(model, Convolutional) else model
    return dataclasses.replace(model, inputs=Direct()) if isinstance(model, Mlp) else Mlp(dropout=0.0)


def expanded(assignments: Iterable[Assignment], depth: int) -> list[Assignment]:
    """Assignments for a pre-trained network: `layers.x` sets x in every layer, `model.x` in the fine-tuned network."""
    found: list[Assignment] = []
    for item in assignments:
        path = item.path
        if path in {"model", "model.class"} or path.startswith(("model.widths", "model.mlp.widths")):
            raise item.refuse("the layers are given by --pretrain. Leave it out.")
        if path.startswith(_EVERY):
            rest = path.removeprefix(_EVERY)
            found += [dataclasses.replace(item, path=f"model.layers.{level}.{rest}") for level in range(depth)]
        elif path.startswith("model.") and path.split(".")[1] not in {"layers", "mlp"}:
            found.append(dataclasses.replace(item, path=f"model.mlp.{path.removeprefix('model.')}"))
        else:
            found.append(item)
    return found


def check_varied(dataset: Dataset) -> None:
    """Raises if all rows have the same inputs."""
    inputs, first = dataset.inputs, dataset.inputs[:1]
    if hasattr(inputs, "toarray"):
        varied = inputs.nnz > 0 and abs(inputs.max(axis=0) - inputs.min(axis=0)).nnz > 0
    else:
        varied = bool(np.any((inputs != first) & ~((inputs != inputs) & (first != first))))
    if not varied:
        raise RequestError(f"all {len(dataset)} rows have the same inputs: there is nothing to learn. Check the file.")


def check_layers(recipe: Recipe, dataset: Dataset) -> None:
    """Raises if the layers do not fit into memory, before any is trained."""
    if isinstance(recipe.model, Pretrained):
        inputs = dataset.shape
        for layer in recipe.model.layers:
            check_layer_memory(layer, inputs, len(dataset))
            inputs = code_shape(layer, inputs)


def _thinned(values: list[Any], steps: np.ndarray) -> tuple[float, ...]:
    return tuple(math.nan if values[step] is None else round(float(values[step]), 6) for step in steps)


def layer_evidence(stack: Stack) -> tuple[PretrainedLayer, ...]:
    """A short record of how each layer was learned, for `result.json`; the first with its features."""
    found = []
    for level, record in enumerate(stack.records):
        history = record.history
        last = len(history["age_examples"]) - 1
        best = max((step for step, is_best in enumerate(history["best"]) if is_best), default=last)
        steps = np.unique([*np.linspace(0, last, min(last + 1, _SHOWN_POINTS)).astype(int), best])
        features = record.evidence.features
        if features is not None and level > 0:
            features = FeatureEvidence(features.width, features.units, features.spectrum)
        found.append(
            PretrainedLayer(
                layer=level + 1,
                learner=kind_of_layer(record.recipe),
                units=int(widths_of(record.recipe)[-1]),
                metric=record.metric,
                valid=record.metrics["valid"][record.metric],
                outcome=str(record.outcome),
                seconds=record.seconds,
                best_age=history["age_examples"][best],
                age=tuple(history["age_examples"][step] for step in steps),
                curve=_thinned(history["valid_score"], steps),
                features=features,
                rows=record.data.rows.total,
            )
        )
    return tuple(found)


def train_pretrained(
    recipe: Recipe,
    dataset: Dataset,
    *,
    key: jax.Array,
    options: RunOptions,
    progress: AbstractProgress,
    scale: ScoreScale,
    **given: Any,
) -> Fit:
    """Trains the layers in turn, then the whole network; the record has each layer's history in its evidence."""
    model: Any = recipe.model
    layers = model.layers
    at = 0

    def begin(level: int, rows: int) -> None:
        nonlocal at
        at = level
        last = level == len(layers)
        stopping = recipe.stopping if last else layers[level].stopping
        prefix = "fine-tuning" if last else f"layer {level + 1} of {len(layers)}"
        progress.training(prefix, length=stopping.limit_examples(rows), scale=scale if last else ScoreScale("loss"))

    bare = dataclasses.replace(recipe, model=model.mlp)
    assert isinstance(bare.model, Mlp)
    try:
        result, stack = fit_pretrained(bare, dataset, layers, key=key, options=options, begin=begin, **given)
    except KeyboardInterrupt:
        if at == len(layers):
            raise
        raise KeyboardInterrupt(
            f"interrupted in layer {at + 1} of {len(layers)}. Progress is saved: continue with --resume."
        ) from None
    return dataclasses.replace(result, evidence=dataclasses.replace(result.evidence, layers=layer_evidence(stack)))
