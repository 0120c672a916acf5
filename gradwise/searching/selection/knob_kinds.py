"""A knob knows its kind: of the optimiser, or of the model; one that sets capacity is never chosen on training error.

    choose(trials, "optimiser.learning_rate", on="train")     the rate that minimises the criterion best
    choose(trials, "model.widths", on="train")                refused: the largest network would always win
    choose(trials, "model.widths", on="valid")                the best on examples that were not trained on

Row E19. A training criterion is free and less noisy than validation, so what only decides how well the criterion is
minimised may be chosen on it.
"""

from collections.abc import Sequence
from typing import Any, Literal

from ...records.trial import Trial
from ...runtime.errors import RequestError, nearest
from ...specs.paths import knobs, parts
from ...specs.search_space import label, read_at

Criterion = Literal["train", "valid"]


def kind_at(recipe: Any, path: str) -> str:
    """The kind of the knob, switch or part at a path: "optimiser", "model" or "capacity".

    A path into a switch (`model.widths.count`) has the switch's kind; a part that holds a knob of capacity sets it too.
    """
    declared = {name: declaration.kind for name, declaration, _ in knobs(recipe)}
    head, _, _ = path.rpartition(".")
    for name in (path, head):
        if name in declared:
            return declared[name]
    known = [*declared, *(name for name, _ in parts(recipe))]
    if path not in known:
        raise RequestError(f"there is no knob `{path}`.{nearest(path, known)}")
    within = {kind for name, kind in declared.items() if name.startswith(f"{path}.")}
    return "capacity" if "capacity" in within else "optimiser" if within == {"optimiser"} else "model"


def _check(trials: Sequence[Trial], path: str) -> None:
    """Refuses to compare training errors where capacity is chosen, openly or along with another knob."""
    recipe = trials[0].recipe
    if kind_at(recipe, path) == "capacity":
        raise RequestError(f"`{path}` sets capacity: training error would choose the most. Choose it on validation.")
    seen: dict[str, set[str]] = {}
    for trial in trials:
        for name, declaration, value in knobs(trial.recipe):
            if declaration.kind == "capacity":
                seen.setdefault(name, set()).add(str(label(value)))
    for name, values in seen.items():
        if len(values) > 1:
            raise RequestError(
                f"`{path}` cannot be chosen on training error among trials that differ in `{name}`, which sets "
                "capacity. Choose it on validation, or among trials of one capacity."
            )


def choose_value(trials: Sequence[Trial], path: str, on: Criterion = "valid") -> Any:
    """The value at this path of the best trial: by validation score, or by the training loss beside it."""
    usable = [trial for trial in trials if trial.ok and read_at(trial.recipe, path)[0]]
    if not usable:
        raise RequestError(f"no trial that ended well has a `{path}`: there is nothing to choose from.")
    if on == "train":
        _check(usable, path)
        best = min(usable, key=lambda trial: (trial.train_loss, trial.number))
    else:
        best = min(usable, key=lambda trial: (trial.score, trial.loss, trial.number))
    return read_at(best.recipe, path)[1]
