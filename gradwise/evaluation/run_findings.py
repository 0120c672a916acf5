"""Findings of a finished run, and how its data were read."""

import math
from typing import Any

import numpy as np

from ..records.data_read import ColumnRead, DataRead, SetSizes
from ..records.finding import Finding
from ..records.outcome import Outcome
from ..runtime.memory import copy_in_blocks
from ..specs.dataset import Classes, Dataset, places_of_columns
from ..specs.fitted_scaler import FittedScaler
from ..specs.knobs import Spec
from ..specs.paths import knobs, parts
from ..specs.recipe import Recipe


def learning_rate_of(recipe: Recipe) -> tuple[str, float]:
    """The path and the value of the learning rate; an optimiser that finds its own has none."""
    for path, _, value in knobs(recipe.optimiser, "optimiser."):
        if path.endswith(".learning_rate"):
            return path, float(value)
    return "", math.nan


def _smaller(recipe: Recipe) -> str:
    path, rate = learning_rate_of(recipe)
    tried = f", first --set {path}={rate / 3:.2g}" if path else ""
    return f"divide the learning rate by 3 until this no longer happens{tried}."


def _still_improving(history: dict[str, list[Any]]) -> bool:
    """Whether the best model is the last one, and not by its loss alone: the score fell in the last quarter too."""
    scores = np.asarray(history["valid_score"], np.float64)
    if not len(scores) or not history["best"][-1]:
        return False
    early = scores[: max(1, 3 * len(scores) // 4)]
    return len(scores) < 4 or bool(np.fmin.reduce(scores) < np.fmin.reduce(early))


def find_in_parts(recipe: Recipe) -> list[Finding]:
    """What the parts of a recipe say of themselves and of one another."""
    own = [part for _, part in parts(recipe) if isinstance(part, Spec)]
    return [one for part in own for one in (*part.findings(), *part.findings_in(recipe))]


def find_in_run(recipe: Recipe, history: dict[str, list[Any]], outcome: Outcome, train: Dataset) -> tuple[Finding, ...]:
    """What a reader should know: warnings of the parts, and what the run itself shows."""
    found = find_in_parts(recipe)
    if outcome.name == "diverged":
        what = f"the run diverged: the loss was NaN or infinite at age {outcome.age_examples:,} examples."
        path = learning_rate_of(recipe)[0]
        found.append(Finding("error", what, row="C1", next=_smaller(recipe), code="GW501", where=path))
    ended = outcome.name in {"finished", "out_of_time", "interrupted"}
    if ended and _still_improving(history) and recipe.stopping.stops_early:
        what = "the best model is the last one: validation was still improving when the run ended."
        step = "give it more time: --resume, a larger --max-time, or a larger `stopping.epochs`."
        found.append(Finding("warning", what, row="C6", next=step, code="GW706"))
    if isinstance(train.task, Classes):
        missing = np.setdiff1d(np.arange(len(train.task.labels)), train.targets)
        if len(missing):
            names = ", ".join(str(train.task.labels[k]) for k in missing[:5])
            what, step = f"the training set has no example of: {names}.", "add examples, or merge rare classes."
            found.append(Finding("warning", what, row="E2", next=step, code="GW212"))
    return tuple(found)


def describe_data(dataset: Dataset, sizes: SetSizes, scaler: FittedScaler, recipe: Recipe) -> DataRead:
    """How the data were read, for the report."""
    places = places_of_columns(dataset.columns)
    listed = list(places)[:200]
    inputs = dataset.inputs
    columns = []
    for name in listed:
        number = places[name][0]  # of a text the first word: where there is none, the text is missing
        column = dataset.columns[number]
        values = inputs[:, number] if hasattr(inputs, "tocsr") else copy_in_blocks(inputs[:, number], inputs.dtype)
        known = values[~np.isnan(values)] if values.dtype.kind == "f" else values
        columns.append(
            ColumnRead(
                name=name,
                kind=column.kind,
                missing=int(len(values) - len(known)),
                categories=len(column.categories),
                constant=bool(len(known) == 0 or known.min() == known.max()),
            )
        )
    return DataRead(
        name=dataset.name,
        target=dataset.task.names,
        rows=sizes,
        split=type(recipe.split).__name__,
        shape=tuple(dataset.shape),
        columns=tuple(columns),
        more=len(places) - len(listed),
        notes=tuple(dataset.notes),
        scaling=tuple(scaler.describe()),
    )
