"""`train`: one well-trained network, its test error, and the record of its training.

    recipe = gradwise.defaults.classification()
    result = gradwise.train(recipe, dataset, key=jax.random.key(0))
    result.test, result.outcome, result.predictor.predict(rows)

It splits the data, fits the scaler on the training set, builds the network, runs intervals until the stopping rule ends
them, then evaluates the best network on every set, the test set for the first and only time.
"""

import dataclasses
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from .. import __version__
from ..evaluation.example_evidence import PredictedPart, find_in_examples, gather_examples, why_not_kept
from ..evaluation.metrics import BALANCED, check_metric
from ..evaluation.run_findings import describe_data, find_in_run
from ..records.data_read import DataRead, SetSizes
from ..records.evidence.example_record import ExampleRecord
from ..records.fit import Fit
from ..records.readings import find_readings, next_reading
from ..records.used_rows import UsedRows
from ..runtime import compilation, keys, machine_description, memory
from ..specs.adapters import as_criterion
from ..specs.dataset import Dataset
from ..specs.fitted_scaler import FittedScaler
from ..specs.recipe import Recipe
from ..specs.sparse.rows import on_host
from ..tracing.flow_monitor import flow_of
from ..tracing.phase_clock import phase
from . import checkpoint
from .final_measurement import find_features, measure_features, measure_parts
from .interval import time_validation
from .loop import RunOptions, run_intervals
from .predictor import Predictor, fit_temperature, outputs_of
from .prepare import (
    CLASS_WEIGHTS,
    is_trained_on,
    padded_examples,
    place_examples,
    refuse_large_network,
    refuse_unlabelled,
    sparse_slots,
    split_labelled,
    target_units,
    weights_of_classes,
)
from .state import Problem, State, init, lasts_a_run


def _fingerprint(
    recipe: Recipe, dataset: Dataset, key: Key[Array, ""], class_weight: CLASS_WEIGHTS, metric: str
) -> str:
    """What must match for a checkpoint to be resumed."""
    words = np.ravel(jax.random.key_data(key)).tolist()
    written = checkpoint.written_recipe(recipe)
    balanced = metric in BALANCED  # the metrics that change what is chosen
    with phase("checkpoints"):
        data = checkpoint.digest(dataset)
    return json.dumps([data, written, words, str(class_weight), balanced], sort_keys=True)


def _predictor(ready: "_Prepared", problem: Problem, state: State, dataset: Dataset) -> Predictor:
    """The best network as a predictor, with its temperature fitted on the validation set."""
    validated = len(ready.valid)  # beyond these there may be empty slots
    # A copy, since `state` may be trained on; through the host, where nothing is compiled for each shape.
    network = eqx.combine(jax.tree.map(lambda leaf: jnp.asarray(np.array(leaf)), state.best), problem.rest)
    criterion = problem.recipe.criterion
    temperature = 1.0
    if dataset.task.kind == "classes":
        outputs = outputs_of(network, on_host(problem.valid.inputs)[:validated])
        temperature = fit_temperature(criterion, outputs, np.asarray(problem.valid.targets)[:validated])
    return Predictor(
        ready.scaler, network, criterion, temperature, *ready.units, dataset.task, dataset.columns, dataset.shape
    )


@dataclasses.dataclass(frozen=True)
class _Prepared:
    """The training, validation and test sets, and what was learned of their units."""

    train: Dataset
    valid: Dataset
    test: Dataset | None
    scaler: FittedScaler
    units: tuple[np.ndarray, np.ndarray]

    @property
    def sets(self) -> dict[str, Dataset | None]:
        return {"train": self.train, "valid": self.valid, "test": self.test}


def _prepare(
    recipe: Recipe,
    dataset: Dataset,
    key: Key[Array, ""],
    metric: str,
    class_weight: CLASS_WEIGHTS,
    warm: Fit | None,
    options: RunOptions,
) -> tuple[_Prepared, Problem, State]:
    """Splits, scales, weighs and builds a run; `warm` gives its scaler, parameters and optimiser state."""
    criterion = as_criterion(recipe.criterion)
    with phase("splitting"):
        train, valid, test = split_labelled(recipe.split, criterion, dataset, key=keys.named(key, "split"))
    recipe = dataclasses.replace(recipe, criterion=criterion.for_targets(train.task, train.targets))
    by_class = weights_of_classes(class_weight, train)
    judged = weights_of_classes("balanced", valid) if metric in BALANCED else by_class
    with phase("scaling"):
        scaler = warm.predictor.scaler if warm else recipe.scaler.fit(train.inputs, train.columns)
        units = (warm.predictor.shift, warm.predictor.scale) if warm else target_units(train)
        weighted = ((train, by_class), (valid, judged))
        slots = sparse_slots(recipe, (train, valid, test), warm.predictor.network if warm else None)
        if slots:
            refuse_large_network(recipe, dataset, len(train))
        learned, chosen_by = (place_examples(part, scaler, units, weights, slots) for part, weights in weighted)
    if recipe.split.bucket() > 1:
        chosen_by = padded_examples(chosen_by, recipe.split.bucket())
    memory.give_back()  # what splitting and scaling are done with
    with phase("building the network"):
        problem, state = init(
            recipe,
            learned,
            chosen_by,
            outputs=dataset.task.outputs,
            classes=dataset.task.outputs if dataset.task.kind == "classes" else 0,
            monitor=options.monitor,
            accounts=options.examples and not why_not_kept(recipe, dataset.task, len(train), len(valid)),
            key=key,
        )
    if warm:
        # Copies: the intervals use up what they are given, and the earlier result must stay whole.
        earlier = jax.tree.map(jnp.array, warm.state)
        # A schedule over the whole run is at its end there: the optimiser begins anew, from the earlier parameters.
        optimiser = state.optimiser if lasts_a_run(recipe.optimiser) else earlier.optimiser
        given = {"best": earlier.best, "memory": earlier.memory}
        state = dataclasses.replace(state, parameters=earlier.parameters, optimiser=optimiser, **given)
    return _Prepared(train, valid, test, scaler, units), problem, state


def _examples(ready: _Prepared, state: State, predictions: dict[str, np.ndarray]) -> ExampleRecord | None:
    """What became of each example, where accounts were kept. Rows validated on are left out if all are trained on."""
    if state.accounts is None:
        return None

    def part(name: str, examples: Dataset) -> PredictedPart:
        rows = np.arange(len(examples)) if examples.rows is None else examples.rows
        return PredictedPart(rows, examples.targets, predictions[name])

    held_out = None if is_trained_on(ready.valid, ready.train) else part("valid", ready.valid)
    return gather_examples(ready.train.task, state.accounts, part("train", ready.train), held_out)


def _described(dataset: Dataset, ready: _Prepared, recipe: Recipe, readings: int) -> DataRead:
    """How the data were read and split."""
    sizes = SetSizes(len(ready.train), len(ready.valid), len(ready.test or ()))
    why = why_not_kept(recipe, dataset.task, sizes.train, sizes.valid) if dataset.task.kind != "inputs" else ""
    of_examples = (f"the losses of single examples are not recorded: {why}",) if why else ()
    return dataclasses.replace(
        describe_data(dataset, sizes, ready.scaler, recipe),
        notes=(*ready.train.notes, *of_examples),  # what the split noted too
        judged_on="train" if is_trained_on(ready.valid, ready.train) else "valid",
        test_readings=readings,
    )


def _read_before(warm: Fit | None, key: Key[Array, ""], dataset: Dataset, test: Dataset) -> int:
    """How often an earlier run, from which this one goes on, read the same test set."""
    if warm is None or (warm.data.name, warm.data.rows.test) != (dataset.name, len(test)):
        return 0
    return warm.data.test_readings if dataset.test is not None or warm.seed == keys.seed_of(key) else 0


def train(
    recipe: Recipe,
    dataset: Dataset,
    *,
    key: Key[Array, ""],
    metric: str | None = None,
    class_weight: CLASS_WEIGHTS = None,
    options: RunOptions = RunOptions(),
    warm: Fit | None = None,
) -> Fit:
    """Trains one network by a recipe.

    `metric` is the metric to report (all metrics are measured); `options` control checkpoints, time and progress.
    `warm` is a warm start from an earlier result: its scaler, parameters and optimiser state.
    """
    compilation.use_compilation_cache()
    criterion = as_criterion(recipe.criterion)
    dataset = dataset.without_targets() if criterion.learns_from == "inputs" else dataset
    refuse_unlabelled(criterion, dataset)
    criterion.check_task(dataset.task)
    metric = check_metric(metric, dataset.task.kind, criterion.measured(recipe.model))

    ready, problem, state = _prepare(recipe, dataset, key, metric, class_weight, warm, options)
    fingerprint = _fingerprint(recipe, dataset, key, class_weight, metric) if options.folder else ""
    state, history, outcome, seconds = run_intervals(problem, state, options, fingerprint)
    time_validation(problem, state)

    memory.give_back()  # what training is done with
    with phase("measurement"):
        predictor = _predictor(ready, problem, state, dataset)
        scaled = {"train": problem.train.inputs, "valid": on_host(problem.valid.inputs)[: len(ready.valid)]}
        del problem  # the scaled sets are freed as each is measured
        measured = measure_features if criterion.learns_from == "inputs" else measure_parts
        metrics, evidence, ends, predictions = measured(predictor, scaled, ready.sets, metric)
        examples = _examples(ready, state, predictions)
    evidence = dataclasses.replace(evidence, flow=flow_of(state.looks))
    readings = 0 if ready.test is None else next_reading(options.folder) + _read_before(warm, key, dataset, ready.test)
    return Fit(
        recipe=recipe,
        outcome=outcome,
        task=dataset.task.kind,
        metric=metric,
        metrics=metrics,
        test_interval=ends,
        history=history,
        evidence=evidence,
        data=_described(dataset, ready, recipe, readings),
        findings=(
            *find_in_run(recipe, history, outcome, ready.train),
            *(*find_features(evidence.features, criterion), *find_in_examples(examples), *find_readings(readings)),
        ),
        seconds=seconds,
        seed=keys.seed_of(key),
        version=__version__,
        machine=machine_description.describe_machine(),
        predictor=predictor,
        state=dataclasses.replace(state, accounts=None),
        examples=examples,
        used=UsedRows.of(ready.train.inputs, ready.valid.inputs, earlier=warm.used if warm else None),
    )
