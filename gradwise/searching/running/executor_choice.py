"""Where to train, by name.

| `on` | where |
|---|---|
| nothing | on an accelerator in this process, if there is one; else one process per core |
| here | this process |
| cpu, gpu | the same, on that device |
| workers, workers:4 | processes on this machine, one core each |
| ray, ray://host:port, host:port | a Ray cluster: started here, or joined |
"""

import math
import os
import pickle
import re
from typing import Any

import jax

from ...models.mlp import Mlp
from ...models.padded_mlp import SELECTABLE
from ...runtime.errors import RequestError
from ...specs.paths import parts
from ...specs.priors import Choice
from ...specs.search_space import Dimension, Space, write_at
from ..storage.job_checkpoints import JobCheckpoints
from .device_runner import Varied
from .evaluation_data import JobData
from .executors import AbstractExecutor, LocalExecutor, WorkerProcesses
from .population_size import MANY, AbstractSlots, BySize

_USUAL = 16  # trials at once where nobody knows how many there will be
_FEW = 8  # fewer leave an accelerator idle


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_accelerated(on: str | None) -> bool:
    """Whether this process trains on an accelerator."""
    return (on or "") in {"", "here", "gpu"} and jax.default_backend() != "cpu"


def expected_hands(on: str | None) -> int:
    """About how many trainings will go on side by side, before anybody was started."""
    word = (on or "").strip().lower()
    count = re.fullmatch(r"workers(?::(\d{1,4}))?", word)
    if count:
        return int(count[1] or _cores())
    return 1 if word == "here" or is_accelerated(on) else _cores()


def _travels(space: Space, data: JobData) -> bool:
    """Whether another process can be told of the study: not if a part was defined where the program began."""
    found = [space.recipe, *(part for _, part in parts(space.recipe))]
    if any(type(part).__module__ == "__main__" for part in found):
        return False
    try:
        pickle.dumps((space.recipe, data.task))
    except (pickle.PicklingError, TypeError, AttributeError):
        return False
    return True


def _ends(dimension: Dimension) -> tuple[Any, ...]:
    """The values of a choice; the ends of a range."""
    scale = dimension.scale
    return scale.values if isinstance(scale, Choice) else (scale.quantile(0.0), scale.quantile(1.0))


def varying(space: Space) -> Varied:
    """What the space varies and one compiled program can serve: knobs with an `off` value, sizes and activations."""
    declared = [(one.path, one.declaration) for one in space.dimensions]
    knobs = tuple(path for path, declaration in declared if declaration is not None and declaration.off is not None)
    sizes = [one for one in space.dimensions if one.path.startswith("model.widths")]
    recipes = [space.recipe, *space.portfolio]
    recipes += [write_at(space.recipe, one.path, value) for one in sizes for value in _ends(one)]
    widths = [recipe.model.widths for recipe in recipes if type(recipe.model) is Mlp]
    depths = {len(one) for one in widths}
    activations = next((_ends(one) for one in space.dimensions if one.path == "model.activation"), ())
    return Varied(
        knobs,
        deepest=max(depths) if len(depths) > 1 else 0,
        widest=max((max(one, default=0) for one in widths), default=0),
        activations=activations if all(isinstance(one, SELECTABLE) for one in activations) else (),
    )


def trials_at_once(trials: int | None, folds: int, *, by_time: bool) -> int:
    """How many trials of several folds an accelerator trains at once, of about so many.

    As many as fill it, in generations of one size; where time decides four of them at least, so that some end early.
    """
    most = max(1, MANY // folds)
    if trials is None:
        return min(most, _USUAL)
    if by_time:
        return min(most, max(_FEW, trials // 4))
    return math.ceil(trials / math.ceil(trials / most))


def choose_executor(
    on: str | None,
    data: JobData,
    space: Space,
    *,
    slots: AbstractSlots | None = None,
    checkpoints: JobCheckpoints = JobCheckpoints(),
    at_once: int = _USUAL,
) -> AbstractExecutor:
    """The executor for a word; an accelerator trains so many trials `at_once`, where they have several folds."""
    word = (on or "").strip().lower()
    options: dict[str, Any] = {"slots": slots or BySize(), "varying": varying(space), "checkpoints": checkpoints}
    if word.startswith("ray") or re.fullmatch(r"(?!workers:)[\w.-]+:\d{1,5}", word):
        from .ray_cluster import RayCluster

        return RayCluster(data, address=None if word == "ray" else on, **options)
    if word == "cpu":
        jax.config.update("jax_platforms", "cpu")
    count = re.fullmatch(r"workers(?::(\d{1,4}))?", word)
    if count:
        if count[1] == "0":
            raise RequestError("`workers:0`: give at least one worker.")
        return WorkerProcesses(data, count=int(count[1] or _cores()), **options)
    if word not in {"", "here", "cpu", "gpu"}:
        raise RequestError(f"unknown device `{on}`; choose here, cpu, gpu, workers:N, ray or ray://host:port.")
    if word == "gpu" and jax.default_backend() == "cpu":
        raise RequestError("JAX found no GPU. Install gradwise[cuda], or leave out `gpu`.")
    if word in {"", "cpu"} and jax.default_backend() == "cpu" and _cores() > 1 and _travels(space, data):
        return WorkerProcesses(data, count=_cores(), **options)
    return LocalExecutor(data, at_once=at_once, **options)
