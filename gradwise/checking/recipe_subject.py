"""A recipe and its data as a subject: what `fit` would train, ready to be checked.

prepared = prepare_recipe(recipe, dataset, key=key)
prepared.subject.value(prepared.subject.parameters, prepared.subject.batch, key)
"""

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from ..curvature.objective import Examples, gather
from ..runtime import keys
from ..specs.adapters import as_criterion
from ..specs.contracts import Batch
from ..specs.dataset import Dataset
from ..specs.fitted_scaler import FittedScaler
from ..specs.networks import apply_batch
from ..specs.recipe import Recipe
from ..training.interval import calibrated
from ..training.prepare import place_examples, refuse_unlabelled, split_labelled, target_units
from ..training.state import Problem, State, init
from .subject import Subject


@dataclass(frozen=True)
class PreparedRecipe:
    """The split data, the network before its first update, and both as a subject."""

    subject: Subject
    recipe: Recipe
    parts: tuple[Dataset, Dataset, Dataset | None]
    scaler: FittedScaler
    problem: Problem
    state: State


def _whole(examples: Examples, memory: PyTree) -> Batch:
    """All examples of a set in the form of a batch."""
    rows = jnp.arange(len(examples), dtype=jnp.int32)
    return gather(examples, rows, jnp.ones(len(examples)), memory)


def _named_columns(train: Dataset, width: int) -> tuple[str, ...]:
    """The names of the network's inputs, if scaling keeps one input per column."""
    names = tuple(column.name for column in train.columns)
    return names if len(names) == width else ()


def prepare_recipe(recipe: Recipe, dataset: Dataset, *, key: Key[Array, ""]) -> PreparedRecipe:
    """Splits, scales and builds as `fit` does with the same key, but trains nothing."""
    criterion = as_criterion(recipe.criterion)
    dataset = dataset.without_targets() if criterion.learns_from == "inputs" else dataset
    refuse_unlabelled(criterion, dataset)
    criterion.check_task(dataset.task)
    train, valid, test = split_labelled(recipe.split, criterion, dataset, key=keys.named(key, "split"))
    recipe = replace(recipe, criterion=criterion.for_targets(train.task, train.targets))
    scaler = recipe.scaler.fit(train.inputs, train.columns)
    units = target_units(train)
    placed = [None if part is None else place_examples(part, scaler, units, None) for part in (train, valid, test)]
    assert placed[0] is not None
    assert placed[1] is not None
    problem, state = init(
        recipe,
        placed[0],
        placed[1],
        outputs=dataset.task.outputs,
        classes=dataset.task.outputs if dataset.task.kind == "classes" else 0,
        key=key,
    )
    batches = _first_batches(problem, state.memory)

    def value(parameters: PyTree, batch: Batch, noise: Any) -> Array:
        return problem.recipe.criterion(problem.model(parameters), batch, key=noise)[0]

    def outputs(parameters: PyTree, inputs: Any, noise: Any) -> Array:
        return apply_batch(problem.model(parameters), inputs, noise)

    def evaluated(parameters: PyTree, inputs: Any) -> Array:
        return apply_batch(calibrated(problem, problem.model(parameters)), inputs, None)

    def extra(parameters: PyTree, batch: Batch, noise: Any) -> dict[str, Any]:
        return {"objective": problem.objective(batch, jnp.zeros((), jnp.int32))}

    subject = Subject(
        value=value,
        parameters=state.parameters,
        batch=batches[0],
        model_of=problem.model,
        outputs=outputs,
        evaluated=evaluated,
        train=_whole(placed[0], state.memory),
        valid=_whole(placed[1], state.memory),
        test=None if placed[2] is None else _whole(placed[2], state.memory),
        batches=batches,
        optimiser=problem.recipe.optimiser.build(),
        extra=extra,
        task=dataset.task.kind,
        columns=_named_columns(train, int(np.prod(placed[0].inputs.shape[1:]))),
        name=dataset.name,
    )
    subject.check()
    return PreparedRecipe(subject, recipe, (train, valid, test), scaler, problem, state)


def _first_batches(problem: Problem, memory: PyTree, count: int = 50) -> tuple[Batch, ...]:
    """The batches of the first updates, in training order; complete ones only."""
    numbers = jnp.arange(count, dtype=jnp.int32)
    rows, present, _ = problem.recipe.batches.indices(numbers, len(problem.train), key=problem.key)
    full = np.flatnonzero(np.asarray(present).all(axis=1))
    chosen = full if len(full) else np.arange(1)
    return tuple(gather(problem.train, rows[number], present[number], memory) for number in chosen)
