"""One pass over some rows, without validation: what `partial_fit` does.

The scaler, the units of the targets and the network come from the first pass or an earlier `fit`; the optimiser
continues where it stopped. Passes over the same rows equal the epochs of one `fit` bit for bit.
"""

import dataclasses
import math
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from .. import __version__
from ..evaluation.metrics import METRICS
from ..records.data_read import DataRead, SetSizes
from ..records.evidence.fit_evidence import FitEvidence
from ..records.finding import Finding
from ..records.fit import Fit
from ..records.outcome import Outcome
from ..records.used_rows import UsedRows
from ..runtime import compilation, keys, machine_description
from ..runtime.errors import RequestError
from ..specs.adapters import as_criterion
from ..specs.contracts import AbstractOptimiser
from ..specs.dataset import Dataset
from ..specs.paths import parts, trainable
from ..specs.recipe import Recipe
from ..training.interval import advance, judged_model, program_of_run
from ..training.predictor import Predictor
from ..training.prepare import (
    CLASS_WEIGHTS,
    place_examples,
    refuse_unlabelled,
    sparse_slots,
    target_units,
    weights_of_classes,
)
from ..training.state import Problem, State, for_building, for_training, init, refuse_inputs

_COLUMNS = ("age_examples", "train_loss", "train_score")


def _pass(problem: Problem, state: State) -> tuple[State, dict[str, Array]]:
    """One epoch. Its model counts as the best, because without validation no earlier one is known to be better."""
    state, seen = advance(problem, state, problem.updates_per_epoch)
    arrays = eqx.filter(judged_model(problem, state), eqx.is_array)
    best = jax.tree.map(jnp.copy, arrays)
    return dataclasses.replace(state, best=best), seen


def _resumed(problem: Problem, state: State) -> State:
    """A copy at the start of the next epoch, counted in the mini-batches of these rows, so that no order comes twice.

    A copy, since a pass uses up the state it is given, and the earlier record must stay whole.
    """
    epoch = -(-int(state.update) // problem.updates_per_epoch)
    copied = jax.tree.map(jnp.array, state)
    return dataclasses.replace(copied, update=jnp.asarray(epoch * problem.updates_per_epoch, jnp.int32))


def _record(
    recipe: Recipe, dataset: Dataset, predictor: Predictor, state: State, seen: Any, earlier: Fit | None
) -> Fit:
    """The pass as a record, its line added to those of the passes before it."""
    kind, criterion = dataset.task.kind, as_criterion(recipe.criterion)
    names = criterion.measured(recipe.model) or METRICS[kind]
    age = len(dataset) + (earlier.outcome.age_examples if earlier else 0)
    line = (age, float(seen["train_loss"]), float(seen["train_score"]))
    before = earlier.history if earlier and tuple(earlier.history) == _COLUMNS else {name: [] for name in _COLUMNS}
    diverged = int(seen["diverged_examples"]) >= 0
    finding = Finding("error", "the loss is no longer a number: the run diverged.", "C1", "lower the learning rate.")
    return Fit(
        recipe=recipe,
        outcome=Outcome("diverged" if diverged else "finished", age),
        task=kind,
        metric=names[0],
        metrics={part: dict.fromkeys(names, math.nan) for part in ("train", "valid", "test")},
        test_interval=(math.nan, math.nan),
        history={name: [*before[name], value] for name, value in zip(_COLUMNS, line, strict=True)},
        evidence=FitEvidence(),
        data=DataRead(dataset.name, rows=SetSizes(len(dataset))),
        findings=(finding,) if diverged else (),
        seconds=0.0,
        seed=0,
        version=__version__,
        machine=machine_description.describe_machine(),
        predictor=predictor,
        state=state,
        used=UsedRows.of(dataset.inputs, earlier=earlier.used if earlier else None),
    )


def _refuse_memory(recipe: Recipe) -> None:
    for _, part in parts(recipe):
        if isinstance(part, AbstractOptimiser) and part.sized(1) is not part:
            raise RequestError(
                f"{type(part).__name__} remembers every training example, and each pass brings others. "
                "Use `fit`, or another optimiser."
            )


def one_pass(
    recipe: Recipe,
    dataset: Dataset,
    *,
    key: Key[Array, ""],
    class_weight: CLASS_WEIGHTS = None,
    earlier: Fit | None = None,
) -> Fit:
    """Visit every row once. `earlier` is the record to continue from; it is not changed."""
    compilation.use_compilation_cache()
    _refuse_memory(recipe)
    begun = time.monotonic()
    task = dataset.task
    criterion = as_criterion(recipe.criterion)
    refuse_unlabelled(criterion, dataset)
    criterion.check_task(task)
    known = earlier.predictor if earlier else None
    scaler: Any = known.scaler if known else recipe.scaler.fit(dataset.inputs, dataset.columns)
    shift, scale = (known.shift, known.scale) if known else target_units(dataset)
    slots = sparse_slots(recipe, (dataset,), known.network if known else None)
    train = place_examples(dataset, scaler, (shift, scale), weights_of_classes(class_weight, dataset), slots)
    classes = task.outputs if task.kind == "classes" else 0
    if earlier is None:
        problem, state = init(recipe, train, train, outputs=task.outputs, classes=classes, key=key)
    else:
        _, rest = trainable(earlier.predictor.network)
        building = for_building(recipe, train)
        problem = Problem(for_training(building), rest, train, train, keys.named(key, "training"), classes)
        refuse_inputs(building, train)
        state = _resumed(problem, earlier.state)
    state, seen = program_of_run(_pass, problem, state)(problem, state)
    network = eqx.combine(state.best, problem.rest)
    predictor = Predictor(
        scaler, network, problem.recipe.criterion, 1.0, shift, scale, task, dataset.columns, dataset.shape
    )
    record = _record(recipe, dataset, predictor, state, jax.device_get(seen), earlier)
    seconds = time.monotonic() - begun + (earlier.seconds if earlier else 0.0)
    return dataclasses.replace(record, seconds=seconds, seed=keys.seed_of(key))
