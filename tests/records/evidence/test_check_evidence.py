"""What a real check leaves as evidence is read from its folder as it was."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np

import gradwise
from gradwise.records.check import read_checked, write_checked
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
    record = gradwise.check(loss, model, (inputs, targets), only=areas)
    assert set(record.summary()["evidence"]) == {*areas, "verdict"}
    write_checked(record, tmp_path)
    again = read_checked(tmp_path)
    assert same(again.evidence, record.evidence)
    assert same(again.ran, record.ran)
    assert again.summary() == record.summary()
