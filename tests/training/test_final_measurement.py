"""Parts are measured on the examples that have a target, and the interval is that of the test part."""

import jax
import numpy as np
import pytest

import gradwise
from gradwise import defaults
from gradwise.data.batches import Reshuffled
from gradwise.evaluation.metrics import wilson
from gradwise.models.mlp import Mlp
from gradwise.specs.dataset import Classes, Dataset
from gradwise.training.final_measurement import measure_parts
from gradwise.training.stopping import Off


@pytest.mark.slow
def test_examples_without_a_target_are_not_judged_and_scaled_inputs_are_taken_as_they_are() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(90, 3))
    y = (x[:, 0] > 0).astype(int)
    data = Dataset(x, y, Classes(np.array(["no", "yes"])))
    recipe = defaults.classification(
        model=Mlp(widths=(4,), dropout=0.0), batches=Reshuffled(size=10), stopping=Off(epochs=3.0)
    )
    predictor = gradwise.train(recipe, data, key=jax.random.key(0)).predictor
    hidden = y.copy()
    hidden[::2] = -1
    half = Dataset(x, hidden, data.task)
    scaled = {"train": predictor.scaler.apply(x)}
    metrics, evidence, ends, _ = measure_parts(
        predictor, scaled, {"train": half, "valid": None, "test": data}, "error_rate"
    )
    wrong = predictor.predict(x).argmax(1) != y
    assert metrics["train"]["error_rate"] == pytest.approx(wrong[1::2].mean())
    assert metrics["test"]["error_rate"] == pytest.approx(wrong.mean())
    assert all(np.isnan(value) for value in metrics["valid"].values())
    assert ends == pytest.approx(wilson(float(wrong.sum()), 90))
    assert evidence.classes.temperature == predictor.temperature
