"""A dry run: what a fit or a search would do, as plain values. Starts no device; trains and writes nothing."""

import math
from pathlib import Path
from typing import Any

from ..evaluation.metrics import METRICS
from ..specs.adapters import as_criterion
from ..specs.dataset import Classes, Dataset, places_of_columns
from ..specs.paths import knobs, parts
from ..training.prepare import sparse_slots
from .data_and_recipe import count_state, expected_sizes
from .requests.assignments import Resolved
from .requests.training_requests import FitRequest

_SHOWN_COLUMNS = 30


def _metric(recipe: Any, kind: str) -> str:
    """The default metric."""
    criterion = as_criterion(recipe.criterion)
    return (criterion.measured(recipe.model) or METRICS[kind])[0]


def _columns(dataset: Dataset) -> list[dict[str, Any]]:
    described = []
    for name, places in list(places_of_columns(dataset.columns).items())[:_SHOWN_COLUMNS]:
        column = dataset.columns[places[0]]
        values = dataset.inputs[:, places[0]]
        missing = int((values != values).sum())
        described.append(
            {"name": name, "kind": column.kind, "missing": missing, "categories": len(column.categories) or ""}
        )
    return described


def _same(value: Any, default: Any) -> bool:
    return bool(value == default) if not isinstance(value, (tuple, list)) else tuple(value) == tuple(default)


def choices(recipe: Any) -> list[dict[str, Any]]:
    """Every part of a recipe, each followed by its knobs: everything that `--set` can change."""
    by_owner: dict[str, list[dict[str, Any]]] = {}
    for path, declaration, value in knobs(recipe):
        default = declaration.default
        knob = {"path": path, "value": value, "default": default, "changed": not _same(value, default)}
        by_owner.setdefault(path.rpartition(".")[0], []).append({**knob, "about": declaration.about})
    listed = []
    for path, part in parts(recipe):
        listed += [{"path": path, "value": type(part).__name__}, *by_owner.get(path, [])]
    return listed


def data_section(dataset: Dataset) -> dict[str, Any]:
    """How the data were read."""
    labels = [str(label) for label in (dataset.task.labels if isinstance(dataset.task, Classes) else ())[:20]]
    more = max(0, len(places_of_columns(dataset.columns)) - _SHOWN_COLUMNS)
    return {
        "data": dataset.name,
        "task": dataset.task.kind,
        "target": list(dataset.task.names) or ["none"],
        **({"classes": labels} if labels else {}),
        "rows": len(dataset),
        "inputs": " x ".join(map(str, dataset.shape)),
        "columns": _columns(dataset),
        "notes": [*dataset.warnings, *dataset.notes, *([f"and {more} more columns"] if more else [])],
    }


def folder_word(folder: Path, resume: bool) -> str:
    exists = "continues the run there" if resume else "replaces the run there"
    return exists if folder.exists() else "new"


def make_plan(options: FitRequest, dataset: Dataset, resolved: Resolved, folder: Path) -> dict[str, Any]:
    """What would be done, as plain values. Starts no device."""
    recipe = resolved.recipe
    train, valid, test = expected_sizes(recipe, dataset)
    scaler: Any = recipe.scaler.fit(dataset.inputs, dataset.columns)  # for the width alone: nothing else is kept of it
    width = scaler.apply(dataset.inputs[:1]).shape[1:]
    parameters, state = count_state(recipe, width, dataset.task.outputs, train)
    slots = sparse_slots(recipe, (dataset,)) if scaler.keeps_zeros() else 0
    memory = (train + valid) * (8 * slots or 4 * math.prod(width)) + state
    batch = min(recipe.batches.size, train)
    spare = int((~dataset.labelled).sum()) if options.pretrain else 0
    return {
        "data": data_section(dataset),
        "training": {
            "split": type(recipe.split).__name__,
            "rows to learn from, about": train,
            "rows to choose by, about": valid,
            "rows to judge by, about": test,
            **({"folds": options.folds} if options.folds else {}),
            "metric": options.metric or _metric(recipe, dataset.task.kind),
            **({"pre-training": options.pretrain} if options.pretrain else {}),
            **({"rows without a target": spare} if spare else {}),
            "network inputs": math.prod(width),
            "parameters": parameters,
            "updates per epoch": -(-train // batch),
            "examples between validations": recipe.stopping.interval_examples(train, valid),
            "examples at most": recipe.stopping.limit_examples(train),
            "memory": f"about {memory / 2**20:.1f} MiB",
        },
        "recipe": choices(recipe),
        "command": options.command(resolved.changes),
        "out": str(folder),
        "folder": folder_word(folder, options.resume),
    }
