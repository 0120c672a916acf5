"""`fit`: one well-trained network, an honest test error, and the story of how it went.

    recipe = gradwise.defaults.classification()
    result = gradwise.fit(recipe, dataset, key=jax.random.key(0))
    result.test, result.outcome, result.predictor.predict(rows)

The journey: split, fit the scaler on the training part, build the network, run intervals until the stopping rule ends
them, then measure the best network on every part, the test part for the first and only time.
"""

import dataclasses
import json
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from .. import __version__
from ..core import keys, machine
from ..core.adapt import as_criterion
from ..core.dataset import Dataset
from ..core.errors import RequestError
from ..core.finding import Finding
from ..core.metric import check_metric, interval, measure
from ..core.outcome import Outcome
from ..core.parts import FittedScaler
from ..core.recipe import Recipe, to_plain
from ..core.record import Fit
from ..core.tree import parts
from . import checkpoint
from .evidence import gather_evidence
from .loop import Conduct, run
from .predictor import Predictor, fit_temperature, outputs_of
from .state import Examples, Problem, State, init

CLASS_WEIGHTS = str | dict[Any, float] | None


def _class_weights(chosen: CLASS_WEIGHTS, train: Dataset) -> np.ndarray | None:
    """One weight a class: as given, or "balanced", in inverse proportion to the class's share of the training part."""
    if chosen is None:
        return None
    if train.task.kind != "classes":
        raise RequestError(f"`class_weight` needs classes, but the target holds {train.task.kind}.")
    counts = np.bincount(train.targets, minlength=train.task.outputs)
    if chosen == "balanced":
        return np.where(counts > 0, len(train) / (np.maximum(counts, 1) * np.count_nonzero(counts)), 0.0)
    if not isinstance(chosen, dict):
        raise RequestError(f'`class_weight` must be "balanced" or a mapping from class to weight; got {chosen!r}.')
    labels = [str(label) for label in train.task.labels.tolist()]
    unknown = [key for key in chosen if str(key) not in labels]
    if unknown:
        raise RequestError(f"`class_weight` names {unknown[0]!r}, which is no class of the target.")
    by_name = {str(key): float(weight) for key, weight in chosen.items()}
    return np.array([by_name.get(label, 1.0) for label in labels] + [1.0] * (len(counts) - len(labels)))


def _weights(part: Dataset, by_class: np.ndarray | None) -> np.ndarray | None:
    """Each example's weight; their mean is 1, so that the learning rate keeps its meaning."""
    if part.weights is None and by_class is None:
        return None
    weights = np.ones(len(part)) if part.weights is None else np.asarray(part.weights, np.float64)
    if by_class is not None:
        weights = weights * by_class[part.targets]
    if not np.all(np.isfinite(weights)) or weights.min() < 0:
        raise RequestError("sample weights and class weights must be finite and at least 0.")
    if weights.sum() <= 0:
        raise RequestError("all sample weights of a part are 0: there is nothing to learn from.")
    return (weights / weights.mean()).astype(np.float32)


def _target_units(train: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of the training part's numbers, in which the network works; 0 and 1 for classes."""
    if train.task.kind != "numbers":
        return np.zeros(1), np.ones(1)
    deviation = train.targets.std(axis=0)
    return train.targets.mean(axis=0), np.where(deviation > 0, deviation, 1.0)


def _examples(part: Dataset, scaler: FittedScaler, units: tuple[np.ndarray, np.ndarray], by_class: Any) -> Examples:
    """A part on the device, scaled."""
    machine.check_memory(part.inputs)
    targets = part.targets
    if part.task.kind == "numbers":
        targets = ((targets - units[0]) / units[1]).astype(np.float32)
    elif part.task.kind == "labels":
        targets = targets.astype(np.float32)
    else:
        targets = targets.astype(np.int32)
    weights = _weights(part, by_class)
    return Examples(
        jnp.asarray(scaler.apply(part.inputs)),
        jnp.asarray(targets),
        None if weights is None else jnp.asarray(weights),
    )


def _written(part: Any) -> Any:
    try:
        return to_plain(part)
    except RequestError:  # a model of the user's own has no written form; its shapes are compared on loading
        return type(part).__qualname__


def _fingerprint(
    recipe: Recipe, dataset: Dataset, key: Key[Array, ""], class_weight: CLASS_WEIGHTS, metric: str
) -> str:
    """What must be equal for a checkpoint to be continued."""
    words = np.ravel(jax.random.key_data(key)).tolist()
    written = {field.name: _written(getattr(recipe, field.name)) for field in dataclasses.fields(recipe)}
    balanced = metric == "balanced_error_rate"  # the one metric that changes what is chosen
    return json.dumps([checkpoint.digest(dataset), written, words, str(class_weight), balanced], sort_keys=True)


def _findings(recipe: Recipe, history: dict[str, list[Any]], outcome: Outcome, train: Dataset) -> tuple[Finding, ...]:
    """What a reader should know: warnings of the parts, and what the run itself shows."""
    found: list[Finding] = []
    for _, part in parts(recipe):
        found.extend(part.findings() if hasattr(part, "findings") else ())
    if outcome.name == "diverged":
        found.append(
            Finding(
                "error",
                f"the loss was no longer a number at age {outcome.age_examples:,} examples: the run diverged.",
                row="C1",
                next="divide the learning rate by 3 until it no longer happens.",
            )
        )
    ages = [age for age, best in zip(history["age_examples"], history["best"], strict=True) if best]
    still = (
        outcome.name in {"finished", "out_of_time", "interrupted"} and ages and ages[-1] == history["age_examples"][-1]
    )
    if still and type(recipe.stopping).__name__ != "Off":
        found.append(
            Finding(
                "warning",
                "the best model is the last one: validation was still improving when the run ended.",
                row="C6",
                next="give it more time: --resume, a larger --max-time, or a larger `stopping.epochs`.",
            )
        )
    if train.task.kind == "classes":
        missing = np.setdiff1d(np.arange(len(train.task.labels)), train.targets)
        if len(missing):
            names = ", ".join(str(train.task.labels[k]) for k in missing[:5])
            found.append(
                Finding(
                    "warning",
                    f"the training part has no example of: {names}.",
                    row="E2",
                    next="add examples, or merge rare classes.",
                )
            )
    return tuple(found)


def _describe(dataset: Dataset, sizes: dict[str, int], scaler: FittedScaler, recipe: Recipe) -> dict[str, Any]:
    """The data as understood, for the report."""
    listed = dataset.columns[:200]
    inputs = dataset.inputs
    columns = []
    for number, column in enumerate(listed):
        values = inputs[:, number]
        known = values[~np.isnan(values)] if values.dtype.kind == "f" else values
        columns.append(
            {
                "name": column.name,
                "kind": column.kind,
                "missing": int(len(values) - len(known)),
                "categories": len(column.categories),
                "constant": bool(len(known) == 0 or known.min() == known.max()),
            }
        )
    return {
        "name": dataset.name,
        "target": list(getattr(dataset.task, "names", ())) or [getattr(dataset.task, "name", "")],
        "rows": sizes,
        "split": type(recipe.split).__name__,
        "shape": list(dataset.shape),
        "columns": columns,
        "more": max(0, len(dataset.columns) - len(listed)),
        "notes": list(dataset.notes),
        "scaling": list(scaler.describe()),
    }


def _predictor(
    problem: Problem, state: State, scaler: FittedScaler, units: tuple[np.ndarray, np.ndarray], dataset: Dataset
) -> Predictor:
    """The best network with its surroundings, its temperature fitted on the validation part."""
    network = eqx.combine(jax.tree.map(jnp.array, state.best), problem.rest)  # a copy: `state` may be trained on
    criterion = problem.recipe.criterion
    temperature = 1.0
    if dataset.task.kind == "classes":
        outputs = outputs_of(network, problem.valid.inputs)
        temperature = fit_temperature(criterion, outputs, np.asarray(problem.valid.targets))
    return Predictor(scaler, network, criterion, temperature, *units, dataset.task, dataset.columns, dataset.shape)


def fit(
    recipe: Recipe,
    dataset: Dataset,
    *,
    key: Key[Array, ""],
    metric: str | None = None,
    class_weight: CLASS_WEIGHTS = None,
    conduct: Conduct = Conduct(),
    warm: Fit | None = None,
) -> Fit:
    """Trains one network by a recipe.

    `metric` names what the result is told in (all metrics are measured); `conduct` says how to run: checkpoints,
    time, watching. `warm` continues from an earlier result: its scaler, parameters and optimiser state.
    """
    machine.use_compilation_cache()
    as_criterion(recipe.criterion).check_task(dataset.task)
    metric = check_metric(metric or {"numbers": "rmse"}.get(dataset.task.kind, "error_rate"), dataset.task.kind)

    train, valid, test = recipe.split(dataset, key=keys.named(key, "split"))
    scaler = warm.predictor.scaler if warm else recipe.scaler.fit(train.inputs, train.columns)
    units = (warm.predictor.shift, warm.predictor.scale) if warm else _target_units(train)
    by_class = _class_weights(class_weight, train)
    judged = _class_weights("balanced", valid) if metric == "balanced_error_rate" else by_class

    problem, state = init(
        recipe,
        _examples(train, scaler, units, by_class),
        _examples(valid, scaler, units, judged),
        outputs=dataset.task.outputs,
        classes=dataset.task.outputs if dataset.task.kind == "classes" else 0,
        key=key,
    )
    if warm:
        # Copies: the intervals use up what they are given, and the earlier result must stay whole.
        earlier = jax.tree.map(jnp.array, warm.state)
        state = State(earlier.parameters, earlier.optimiser, state.stopping, earlier.best, state.update)
    fingerprint = _fingerprint(recipe, dataset, key, class_weight, metric) if conduct.folder else ""
    state, history, outcome, seconds = run(problem, state, conduct, fingerprint)

    predictor = _predictor(problem, state, scaler, units, dataset)
    plain = dataclasses.replace(predictor, temperature=1.0)
    metrics, evidence, ends = {}, {}, (math.nan, math.nan)
    outputs = {
        "train": outputs_of(predictor.network, problem.train.inputs),
        "valid": outputs_of(predictor.network, problem.valid.inputs),
        "test": None if test is None else outputs_of(predictor.network, scaler.apply(test.inputs)),
    }
    for name, part in (("train", train), ("valid", valid), ("test", test)):
        if part is None:
            metrics[name] = {each: math.nan for each in metrics["train"]}
            continue
        predictions = predictor.from_outputs(outputs[name])
        metrics[name] = measure(dataset.task, predictions, part.targets, part.weights)
        if name == "test":
            evidence = gather_evidence(dataset.task, plain.from_outputs(outputs[name]), predictions, part.targets)
            ends = interval(metric, dataset.task, predictions, part.targets, part.weights)
    sizes = {"train": len(train), "valid": len(valid), "test": 0 if test is None else len(test)}
    return Fit(
        recipe=recipe,
        outcome=outcome,
        task=dataset.task.kind,
        metric=metric,
        metrics=metrics,
        test_interval=ends,
        history=history,
        evidence={**evidence, "temperature": predictor.temperature} if dataset.task.kind == "classes" else evidence,
        data=_describe(dataset, sizes, scaler, recipe),
        findings=_findings(recipe, history, outcome, train),
        seconds=seconds,
        seed=keys.seed_of(key),
        version=__version__,
        machine=machine.describe(),
        predictor=predictor,
        state=state,
    )
