"""A dry run of `gradwise search`: what it would do, as plain values. Starts no device and trains nothing."""

from pathlib import Path
from typing import Any

from ...searching.search import folds_before_finals
from ...searching.selection.committee_members import ANSWERS
from ...searching.selection.nested_cv import FOLDS
from ...searching.storage.study_definition import prior_text
from ...searching.strategies.contract import History
from .fit_plan import choices, data_section, expected_sizes, folder_word
from .search_request import PreparedSearch


def make_search_plan(prepared: PreparedSearch, folder: Path) -> dict[str, Any]:
    """What a search would do, as plain values. Starts no device."""
    options, dataset, recipe = prepared.options, prepared.dataset, prepared.space.recipe
    train, valid, test = expected_sizes(recipe, dataset)
    folds = folds_before_finals(prepared.plan, dataset)
    by_budget = prepared.plan.folds is None and prepared.plan.committee in ANSWERS and dataset.times is None
    in_folds = "in folds" if by_budget else f"in {folds} folds"
    outer = prepared.fold_budget
    tries = prepared.strategy.describe(prepared.space, History(budget=prepared.budget.trials))
    finals = f"{prepared.plan.finalists} settings, {prepared.plan.seeds} seeds each"
    return {
        "data": data_section(dataset),
        "training": {
            "split": type(recipe.split).__name__,
            "rows to learn from, about": train,
            "rows to choose by, about": f"{train + valid}, {in_folds}" if by_budget or folds > 1 else valid,
            "rows to judge by, about": test,
            "metric": prepared.metric,
            "strategy": options.strategy,
            **({"tries": tries} if tries else {}),
            "budget": str(prepared.budget),
            "finalists": "none" if prepared.plan.committee in ANSWERS else finals,
            "committee": prepared.plan.committee,
            "mini-batch size": "chosen at the end" if prepared.plan.batch_size else recipe.batches.size,
            "double cross-validation": f"{FOLDS} folds, {outer} each" if outer is not None else "no",
            "on": options.on or "the best available device",
        },
        "ranges": [
            {
                "path": one.path,
                "range": prior_text(one.prior),
                "about": one.declaration.about if one.declaration else "",
            }
            for one in prepared.space.dimensions
        ],
        "recipe": choices(recipe),
        "command": prepared.settings["command"],
        "study_file": prepared.study_file,
        "out": str(folder),
        "folder": folder_word(folder, options.resume),
    }
