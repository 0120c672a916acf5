"""From a part of the data to examples on the device: scaled, in the network's units, weighted."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from ..curvature.objective import Examples
from ..runtime import memory
from ..runtime.errors import RequestError
from ..specs.adapters import as_criterion, as_model
from ..specs.contracts import AbstractCriterion, AbstractSplit
from ..specs.dataset import Classes, Dataset, Several, is_labelled
from ..specs.fitted_scaler import FittedScaler
from ..specs.networks import as_network
from ..specs.recipe import Recipe
from ..specs.sequences import Sequences
from ..specs.sparse.rows import SparseRows, as_csr, is_csr, longest_row
from .state import count_network, reads_examples

_WEIGHTLESS = "all sample weights of the {} are 0: some must be positive."
CLASS_WEIGHTS = str | dict[Any, float] | None


def refuse_unlabelled(criterion: AbstractCriterion | None, dataset: Dataset) -> None:
    """Refuses data without targets, or with too few, for a criterion that needs them; without a word it does."""
    learns_from = "targets" if criterion is None else criterion.learns_from
    if learns_from == "inputs":
        return
    name = "the criterion" if criterion is None else type(criterion).__name__
    if dataset.task.kind == "inputs":
        raise RequestError(
            f"the data have no target, but {name} needs one for each row. Name the "
            "target with --target, or learn features without one: gradwise fit --unsupervised."
        )
    known = dataset.labelled
    if known.all():
        return
    if not known.any():
        raise RequestError(
            "the target is missing in every row. Name another, or learn features with gradwise fit --unsupervised."
        )
    if learns_from != "both":
        raise RequestError(
            f"the target is missing in {(~known).sum()} of {len(known)} rows, first in data row "
            f"{np.argmin(known) + 1}: "
            f"{name} needs one for each. Leave those rows out, or learn from their inputs: --pretrain denoising:100x2"
            + (", or criterion `SemiSupervised` or `EmbedNeighbours`." if dataset.task.kind != "several" else ".")
        )


def _refuse_weightless(test: Dataset | None) -> None:
    """Refuses a test set that could not be measured, before anything is trained."""
    if test is not None and test.weights is not None and not np.any(np.asarray(test.weights)[test.labelled]):
        raise RequestError(_WEIGHTLESS.format("test set"))


def split_labelled(
    split: AbstractSplit, criterion: AbstractCriterion | None, dataset: Dataset, *, key: Key[Array, ""]
) -> tuple[Dataset, Dataset, Dataset | None]:
    """The parts. Examples without a target can only be learned from: they all go to the training set."""
    refuse_unlabelled(criterion, dataset)
    known = dataset.labelled
    if dataset.test is not None and not dataset.test.labelled.all():
        row = int(np.argmin(dataset.test.labelled)) + 1
        raise RequestError(f"data row {row} of the test set has no target. Remove such rows.")
    if known.all():
        parts = split(dataset, key=key)
        _refuse_weightless(parts[2])
        return parts
    split = split.among(known)  # a split that counts rows counts fewer
    whole = replace(dataset, rows=None)  # places within this data set
    train, valid, test = split(replace(whole.take(np.flatnonzero(known)), test=dataset.test), key=key)
    assert train.rows is not None
    _refuse_weightless(test)
    rows = np.sort(np.concatenate([train.rows, np.flatnonzero(~known)]))
    note = f"{len(train)} of {len(rows)} training rows have a target; the others are used unlabelled"

    def placed(part: Dataset) -> Dataset:
        return part if dataset.rows is None or part.rows is None else replace(part, rows=dataset.rows[part.rows])

    learned = replace(whole.take(rows), notes=(*train.notes, note))
    return placed(learned), placed(valid), test if test is None or test is dataset.test else placed(test)


def is_trained_on(part: Dataset, train: Dataset) -> bool:
    """Whether all of a part's examples are among those that are trained on: its score is a training score then."""
    if part is train:
        return True
    if part.rows is not None and train.rows is not None and np.isin(part.rows, train.rows).all():
        return True
    if part.inputs.shape != train.inputs.shape or not np.array_equal(part.targets, train.targets):
        return False
    if isinstance(part.inputs, Sequences):
        same = np.array_equal(part.inputs.offsets, train.inputs.offsets)
        return same and np.array_equal(part.inputs.values, train.inputs.values)
    if isinstance(part.inputs, np.ndarray):
        return np.array_equal(part.inputs, train.inputs, equal_nan=part.inputs.dtype.kind == "f")
    return bool((part.inputs != train.inputs).nnz == 0)


def weights_of_classes(chosen: CLASS_WEIGHTS, train: Dataset) -> np.ndarray | None:
    """One weight a class: as given, or "balanced", in inverse proportion to the class's share of the training set."""
    if chosen is None:
        return None
    if not isinstance(train.task, Classes):
        raise RequestError(f"`class_weight` needs classes, but the target holds {train.task.kind}.")
    known = train.targets[train.labelled]
    counts = np.bincount(known, minlength=train.task.outputs)
    if chosen == "balanced":
        return np.where(counts > 0, len(known) / (np.maximum(counts, 1) * np.count_nonzero(counts)), 0.0)
    if not isinstance(chosen, dict):
        raise RequestError(f'`class_weight` must be "balanced" or a mapping from class to weight; got {chosen!r}.')
    labels = [str(label) for label in train.task.labels.tolist()]
    unknown = [key for key in chosen if str(key) not in labels]
    if unknown:
        raise RequestError(f"`class_weight` has {unknown[0]!r}, which is not a class of the target.")
    by_name = {str(key): float(weight) for key, weight in chosen.items()}
    return np.array([by_name.get(label, 1.0) for label in labels] + [1.0] * (len(counts) - len(labels)))


def _weights(part: Dataset, by_class: np.ndarray | None) -> np.ndarray | None:
    """Each example's weight; their mean is 1, so that the learning rate keeps its meaning."""
    if part.weights is None and by_class is None:
        return None
    weights = np.ones(len(part)) if part.weights is None else np.asarray(part.weights, np.float64)
    if by_class is not None:
        weights = weights * np.where(part.labelled, by_class[part.targets], 1.0)
    if not np.all(np.isfinite(weights)) or weights.min() < 0:
        raise RequestError("sample weights and class weights must be finite and at least 0.")
    if weights.sum() <= 0:
        raise RequestError(_WEIGHTLESS.format("training or validation set"))
    return (weights / weights.mean()).astype(np.float32)


def _units(known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    deviation = known.std(axis=0) if len(known) else np.ones(known.shape[1])
    mean = known.mean(axis=0) if len(known) else np.zeros(known.shape[1])
    return mean, np.where(deviation > 0, deviation, 1.0)


def target_units(train: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of the training set's numbers, in which the network works; 0 and 1 for classes.

    Of several tasks they stand side by side, one pair for each output.
    """
    if isinstance(train.task, Several):
        shift, scale = np.zeros(train.task.outputs), np.ones(train.task.outputs)
        for piece in train.task.pieces:
            if piece.task.kind == "numbers":
                own = piece.of(train.targets)
                shift[piece.outputs], scale[piece.outputs] = _units(own[is_labelled(own, piece.task)])
        return shift, scale
    if train.task.kind != "numbers":
        return np.zeros(1), np.ones(1)
    return _units(train.targets[train.labelled])


def padded_examples(examples: Examples, multiple: int) -> Examples:
    """The examples with empty slots up to a multiple, copies of the first that count nothing."""
    count = len(examples)
    slots = np.arange(-(-count // multiple) * multiple)
    rows = np.where(slots < count, slots, 0)
    weights = np.ones(count, np.float32) if examples.weights is None else np.asarray(examples.weights)
    counted = np.where(slots < count, weights[rows], np.float32(0.0))
    padded: tuple[Any, Any] = jax.tree.map(
        lambda leaf: jnp.asarray(np.asarray(leaf)[rows]), (examples.inputs, examples.targets)
    )
    return replace(examples, inputs=padded[0], targets=padded[1], weights=jnp.asarray(counted))


_LEAST_SPARSE = 16  # numbers for each non-zero: where there are fewer, dense rows are as small and as fast


def sparse_slots(recipe: Recipe, parts: Sequence[Dataset | None], network: Any = None) -> int:
    """The slots of a row if these parts of the data are trained on as `SparseRows`; 0 if as dense rows.

    They are where the data are sparse, dense rows would take more memory, and every part of the recipe reads them so. A
    `network` to go on from decides alone.
    """
    inputs = [part.inputs for part in parts if part is not None]
    longest = max(longest_row(each) if is_csr(each) else int(each.shape[-1]) for each in inputs)
    if network is not None:
        return max(1, longest) if as_network(network).takes_sparse else 0
    first = inputs[0]
    if not is_csr(first) or 2 * longest > first.shape[1] or _LEAST_SPARSE * first.nnz > math.prod(first.shape):
        return 0
    able = as_model(recipe.model).takes_sparse() and as_criterion(recipe.criterion).takes_sparse()
    return max(1, longest) if able and not reads_examples(recipe.optimiser) else 0


def refuse_large_network(recipe: Recipe, dataset: Dataset, rows: int) -> None:
    """Refuses a network that does not fit into memory: sparse rows may have more columns than dense ones ever could."""
    given = (recipe.model, recipe.optimiser, dataset.shape, dataset.task.outputs, rows)
    parameters, needed = count_network(*given)
    what = f"the network has {parameters:,} parameters, and training needs"
    memory.require_memory(needed, what, "Make its first layer smaller, or use fewer columns.")


def scale_rows(inputs: Any, scaler: FittedScaler, slots: int) -> Any:
    """Scaled inputs on the host: dense, or with `slots` as `SparseRows` with so many slots at least."""
    if not slots or not scaler.keeps_zeros():
        memory.check_memory(inputs)
        return scaler.apply(inputs)
    return SparseRows.of(scaler.apply_sparse(as_csr(inputs)), slots)


def _placed_several(task: Several, targets: np.ndarray, units: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """The targets of several tasks, numbers in the network's units. One that is missing beside others is infinite:

    NaN is the target of an example that has none at all.
    """
    placed = np.array(targets, np.float64)
    for piece in task.pieces:
        if piece.task.kind == "numbers":
            placed[:, piece.targets] -= units[0][piece.outputs]
            placed[:, piece.targets] /= units[1][piece.outputs]
    known = ~np.isnan(targets).all(axis=1, keepdims=True)
    return np.where(np.isnan(placed) & known, np.inf, placed).astype(np.float32)


def place_examples(
    part: Dataset, scaler: FittedScaler, units: tuple[np.ndarray, np.ndarray], by_class: Any, slots: int = 0
) -> Examples:
    """A part on the device, scaled; with `slots` as sparse rows, if the scaler keeps zeros."""
    targets = part.targets
    if isinstance(part.task, Several):
        targets = _placed_several(part.task, targets, units)
    elif part.task.kind == "numbers":
        targets = ((targets - units[0]) / units[1]).astype(np.float32)
    elif part.task.kind in ("labels", "inputs"):
        targets = targets.astype(np.float32)
    else:
        targets = targets.astype(np.int32)
    weights = _weights(part, by_class)
    # An array of its own: a processor takes it as it is, uncopied.
    inputs = jax.device_put(scale_rows(part.inputs, scaler, slots))
    layout = scaler.layout(inputs.shape[1:])
    if isinstance(inputs, SparseRows):
        assert layout is not None, "sparse rows are rows"
        layout = replace(layout, sparse=True)
    return Examples(inputs, jnp.asarray(targets), None if weights is None else jnp.asarray(weights), layout)
