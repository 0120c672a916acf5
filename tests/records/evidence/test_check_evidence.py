"""What a real check leaves as evidence is read from its folder as it was."""

import dataclasses
import typing
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import gradwise
from gradwise.records.check import Checked, read_checked, write_checked
from gradwise.records.data_read import DataRead
from gradwise.records.evidence.check_evidence import CheckedEvidence
from gradwise.records.evidence.fit_evidence import FitEvidence
from gradwise.records.finding import Finding
from gradwise.records.fit import Fit
from gradwise.records.study import Study
from tests.records.evidence.test_fit_evidence import same


def test_evidence_of_a_real_check_comes_back_from_its_folder(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(24, 3)).astype(np.float32)
    targets = (inputs[:, 0] > 0).astype(np.float32)
    model = {
        "w": jnp.asarray(draw.normal(size=(3, 4)), jnp.float32),
        "v": jnp.asarray(draw.normal(size=4), jnp.float32),
    }

    def loss(model: dict[str, jnp.ndarray], x: jnp.ndarray, y: jnp.ndarray) -> jnp.ndarray:
        return jnp.mean((jnp.tanh(x @ model["w"]) @ model["v"] - y) ** 2)

    areas = ["data", "gradient", "start", "overfit", "rates", "flow", "choices", "graph"]
    record = gradwise.check_problem(loss, model, (inputs, targets), only=areas)
    assert set(record.summary()["evidence"]) == {*areas, "verdict"}
    write_checked(record, tmp_path)
    again = read_checked(tmp_path)
    assert same(again.evidence, record.evidence)
    assert same(again.ran, record.ran)
    assert again.summary() == record.summary()


def test_no_record_holds_its_evidence_as_a_dictionary() -> None:
    """Every class that can be reached from a record says what its fields are."""
    loose = {"evidence", "data", "winner", "committee", "estimates", "analysis"}
    seen: set[type] = set()
    waiting: list[Any] = [Fit, Checked, Study]
    while waiting:
        kind = waiting.pop()
        waiting += [part for part in typing.get_args(kind) if part is not kind]
        if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind not in seen:
            seen.add(kind)
            hints = typing.get_type_hints(kind)
            waiting += hints.values()
            if kind is not Finding:  # the numbers of a finding are named by the finding itself
                assert [name for name in loose & set(hints) if hints[name] == dict[str, Any]] == []
    assert {FitEvidence, CheckedEvidence, DataRead} <= seen
