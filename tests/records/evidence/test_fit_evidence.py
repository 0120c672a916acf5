"""What a real run leaves as evidence is read from its folder as it was."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from gradwise import defaults
from gradwise.data.batches import Reshuffled
from gradwise.journeys.fit import fit_recipe
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.records.fit import Fit, read_fit, write_fit
from gradwise.specs.dataset import Classes, Dataset, Inputs, Labels, Numbers, Task
from gradwise.tracing.flow_monitor import FlowMonitor
from gradwise.training.loop import RunOptions
from gradwise.training.stopping import Off


def same(first: Any, second: Any) -> bool:
    """Equal in every field and of the same types; not-a-number equals itself."""
    if type(first) is not type(second):
        return False
    if dataclasses.is_dataclass(first):
        return all(same(getattr(first, f.name), getattr(second, f.name)) for f in dataclasses.fields(first))
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, float) and math.isnan(first):
        return math.isnan(second)
    return bool(first == second)


def trained(task: Task) -> Fit:
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(60, 9))
    targets = {
        "classes": (inputs[:, 0] > 0).astype(int),
        "labels": (inputs[:, :2] > 0).astype(float),
        "numbers": inputs[:, :2] + 0.1,
        "inputs": np.zeros((60, 0)),
    }[task.kind]
    parts: dict[str, Any] = {"batches": Reshuffled(size=20), "stopping": Off(epochs=3.0)}
    if task.kind == "inputs":
        recipe = defaults.features("plain", 5, **parts)
    else:
        make = {"classes": defaults.classification, "labels": defaults.multilabel, "numbers": defaults.regression}
        recipe = make[task.kind](model=Mlp(widths=(4,), dropout=0.0), optimiser=Sgd(learning_rate=0.1), **parts)
    options = RunOptions(monitor=FlowMonitor(every=2, rows=4))
    return fit_recipe(recipe, Dataset(inputs, targets, task), key=jax.random.key(0), options=options)


@pytest.mark.parametrize(
    ("task", "seen"),
    [
        (Classes(np.array(["no", "yes"])), {"classes", "thresholds", "baselines", "flow", "verdict"}),
        pytest.param(
            Labels(("a", "b")), {"labels", "thresholds", "baselines", "flow", "verdict"}, marks=pytest.mark.slow
        ),
        pytest.param(Numbers(("u", "v")), {"numbers", "baselines", "flow", "verdict"}, marks=pytest.mark.slow),
        pytest.param(Inputs(), {"features", "flow"}, marks=pytest.mark.slow),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_evidence_of_a_real_run_comes_back_from_its_folder(task: Task, seen: set[str], tmp_path: Path) -> None:
    record = trained(task)
    assert set(record.summary()["evidence"]) == seen
    write_fit(record, tmp_path)
    again = read_fit(tmp_path)
    assert same(again.evidence, record.evidence)
    assert same(again.data, record.data)
    assert same(again.findings, record.findings)
