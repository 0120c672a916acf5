"""Targets of several kinds that one network learns together (row G7), from the table to the predictions."""

import csv
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import gradwise as gw
from gradwise import defaults
from gradwise.data.batches import Reshuffled
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import Classes, Dataset, Numbers, Several
from gradwise.training.loop import RunOptions
from gradwise.training.stopping import Off

TARGETS = ["price", "colour"]
PARTS: dict[str, Any] = {"model": Mlp(widths=(16,), dropout=0.0), "optimiser": Adam(0.01)}
QUICK: dict[str, Any] = {**PARTS, "stopping": Off(epochs=10), "no_baselines": True, "progress": False}


def houses(count: int = 240, seed: int = 0) -> pd.DataFrame:
    """A price and a colour that depend on the same two hidden numbers; of each some are missing."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(count, 4))
    hidden = np.tanh(x @ np.array([[1.0, 0.2], [-0.5, 1.0], [0.3, -0.8], [0.0, 0.6]]))
    frame = pd.DataFrame(x, columns=list("abcd"))
    frame["price"] = 200 + 50 * hidden[:, 0] + draw.normal(size=count)
    frame["colour"] = np.where(hidden[:, 1] > 0.3, "red", np.where(hidden[:, 0] > 0, "green", "blue"))
    frame.loc[np.arange(count) % 5 == 0, "price"] = np.nan
    frame.loc[np.arange(count) % 5 == 1, "colour"] = None
    return frame


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[gw.Model, Path]:
    found = gw.fit(houses(), target=TARGETS, **QUICK)
    return found, found.save(tmp_path_factory.mktemp("several") / "run")


@pytest.fixture
def run(model: tuple[gw.Model, Path]) -> Path:
    return model[1]


def test_each_target_is_predicted_and_measured(model: tuple[gw.Model, Path]) -> None:
    found, rows = model[0], houses(60, seed=1)
    predicted, chances = found.predict(rows), found.predict_proba(rows)
    assert list(predicted.columns) == TARGETS
    assert set(predicted["colour"]) <= {"blue", "green", "red"}
    assert 50 < predicted["price"].mean() < 350  # in its own unit
    assert chances["colour"].shape == (60, 3)
    np.testing.assert_allclose(chances["colour"].sum(1), 1.0, rtol=1e-9)
    measured, known = found.measure(rows), rows["colour"].notna()
    wrong = predicted["colour"][known] != rows["colour"][known]
    assert measured["colour.error_rate"] == pytest.approx(wrong.mean())
    error = (predicted["price"] - rows["price"]).dropna()
    assert measured["price.rmse"] == pytest.approx(np.sqrt((error**2).mean()), rel=1e-6)
    relative = measured["price.rmse"] / rows["price"].std(ddof=0)
    share = 1 - rows["colour"].value_counts(normalize=True).max()
    assert measured["relative_error"] == pytest.approx((relative + wrong.mean() / share) / 2, rel=1e-6)
    assert found.score(rows) == pytest.approx(1 - measured["relative_error"])
    assert found.classes == ("price", "colour")


def test_the_record_has_every_metric_of_each_target(model: tuple[gw.Model, Path]) -> None:
    found, folder = model
    result = json.loads((folder / "result.json").read_text())
    assert (result["task"], result["metric"], result["test"]) == ("several", "relative_error", found.test)
    assert found.tests["price"]["rmse"] == result["metrics"]["test"]["price.rmse"]
    assert set(found.tests) == set(TARGETS)
    assert found.test_interval[0] <= found.test <= found.test_interval[1]
    assert result["data"]["target"] == TARGETS
    page = (folder / "report.html").read_text()
    assert "Every metric of price" in page
    assert "Every metric of colour" in page
    examples = found.examples
    assert {"target_price", "target_colour", "predicted_price", "predicted_colour"} <= set(examples.columns)
    assert set(examples["target_colour"]) == {"", "blue", "green", "red"}


def test_a_saved_model_predicts_the_same(model: tuple[gw.Model, Path]) -> None:
    rows = houses(30, seed=2)
    pd.testing.assert_frame_equal(gw.load(model[1]).predict(rows), model[0].predict(rows))


def test_from_the_command_line(gradwise: Any, run: Path, tmp_path: Path) -> None:
    table = tmp_path / "new.csv"
    houses(20, seed=3).to_csv(table, index=False)
    said = gradwise("predict", str(run), str(table), "--probabilities", "--out", str(tmp_path / "p.csv"))
    assert said.code == 0
    assert "colour.error_rate" in said.err
    with (tmp_path / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    chances = [f"probability_colour_{name}" for name in ("blue", "green", "red")]
    assert list(rows[0]) == ["price", "colour", *chances]
    for row in rows:
        assert f"probability_colour_{row['colour']}" == max(chances, key=lambda name, r=row: float(r[name]))
    for words in (("--budget", "2 trials"), ("--strategy", "layerwise")):
        said = gradwise("search", str(table), "--target", "price,colour", *words, "--out", str(tmp_path / "s"))
        assert said.code == 2
        assert "a search needs targets of one kind, but `price`, `colour` are of several" in said.err


def test_what_needs_one_kind_of_target_is_refused(model: tuple[gw.Model, Path], tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="an exported model needs targets of one kind"):
        model[0].export(tmp_path / "model.onnx")
    with pytest.raises(RequestError, match="`class_weight` needs classes, but the target holds several"):
        gw.fit(houses(), target=TARGETS, class_weight="balanced", **QUICK)
    with pytest.raises(RequestError, match="3 entries for 2 targets"):
        gw.fit(houses(), target=TARGETS, progress=False, set={"criterion.loss.weights": (1, 2, 3)})
    frame = houses()
    frame.loc[3, TARGETS] = None
    with pytest.raises(RequestError, match="the target is missing in 1 of 240 rows, first in data row 4"):
        gw.fit(frame, target=TARGETS, **QUICK)
    with pytest.raises(RequestError, match="`SemiSupervised` learns one task"):
        gw.fit(houses(), target=TARGETS, progress=False, set={"criterion": "SemiSupervised", "model": "Joint"})


def _related(count: int, few: int, seed: int) -> tuple[Dataset, Dataset]:
    """A number and a class that bend the same direction of 20 inputs; only a few classes are known.

    The first data set has both targets, the second the classes alone; their test sets hold the same rows.
    """
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(count + 1000, 20)).astype(np.float32)
    along = x @ (draw.normal(size=(20, 1)) / np.sqrt(20))
    kind = (np.abs(along[:, 0]) > 0.67).astype(int)
    targets = np.concatenate([along**2, kind[:, None]], axis=1)
    targets[few:count, 1] = np.nan
    task = Classes(np.array(["no", "yes"]), "kind")
    both = Several((Numbers(("number",)), task))
    official, alone = Dataset(x[count:], targets[count:], both), Dataset(x[count:], kind[count:], task)
    return Dataset(x[:count], targets[:count], both, test=official), Dataset(x[:few], kind[:few], task, test=alone)


@pytest.mark.slow
def test_a_related_task_with_many_targets_helps_one_with_few() -> None:
    """Paired over seeds: the class of 60 rows, alone and beside a number of 1,500 rows that bends the same one."""
    parts: dict[str, Any] = {"model": Mlp(widths=(32,), dropout=0.0), "optimiser": Adam(5e-3)}
    parts["batches"] = Reshuffled(size=64)
    errors = []
    for seed in range(4):
        several, single = _related(1500, 60, seed)
        key, options = jax.random.key(seed), RunOptions(examples=False)
        one = gw.train(defaults.classification(**parts, stopping=Off(epochs=400)), single, key=key, options=options)
        more = gw.train(defaults.multitask(**parts, stopping=Off(epochs=30)), several, key=key, options=options)
        errors.append((one.metrics["test"]["error_rate"], more.metrics["test"]["kind.error_rate"]))
    alone, together = np.array(errors).T
    assert np.all(together < alone - 0.05), errors
