"""Records with real numbers: scikit-learn's networks trained on its own data sets, one pass an interval.

The evidence is gathered as `fit` gathers it and the recipes are the recommended ones, so a report of these records is
a report of the real thing; only the training is somebody else's, which keeps these tests quick.
"""

import dataclasses
import html
import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwise import defaults
from gradwise.evaluation.metrics import measure, metric_interval
from gradwise.evaluation.prediction_figure_data import gather_evidence
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.records.data_read import ColumnRead, DataRead, SetSizes
from gradwise.records.evidence.fit_evidence import CrossValidationEstimate
from gradwise.records.finding import Finding
from gradwise.records.fit import Fit
from gradwise.records.outcome import Outcome
from gradwise.specs.dataset import Classes, Numbers

MACHINE = {"device": "cpu: cpu", "cores": 2, "jax": "0.10.0", "python": "3.11.7", "date": "2025-11-15 09:30 UTC"}


def _history(rows: int, columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The columns of a history with one entry for each pass over so many rows."""
    ages = [rows * (i + 1) for i in range(len(columns["valid_score"]))]
    lowest, best = math.inf, []
    for score in columns["valid_score"]:
        best.append(score < lowest)
        lowest = min(score, lowest)
    return {
        "age_examples": ages,
        "updates": [age // 32 for age in ages],
        "epoch": [age / rows for age in ages],
        "best": best,
        "patience_examples": [2 * age for age in ages],
        "learning_rate": [0.003 / (1 + 0.05 * i) for i in range(len(ages))],
        "seconds": [0.05 * (i + 1) for i in range(len(ages))],
        **columns,
    }


def _sharpened(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    powered = probabilities ** (1.0 / temperature)
    return powered / powered.sum(1, keepdims=True)


def _log_loss(probabilities: np.ndarray, y: np.ndarray) -> float:
    return float(-np.log(np.maximum(probabilities[np.arange(len(y)), y], 1e-12)).mean())


def _by_class(values: np.ndarray, y: np.ndarray, size: int) -> list[float]:
    return [float(values[y == k].mean()) for k in range(size)]


def train_classes(passes: int = 30) -> Fit:
    """A small network on `digits`, with everything that a report shows of classes."""
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order] / 16.0, y[order]
    (xt, xv, xs), (yt, yv, ys) = np.split(x, [1079, 1438]), np.split(y, [1079, 1438])
    network = MLPClassifier(hidden_layer_sizes=(32,), learning_rate_init=0.003, random_state=0, batch_size=32)
    names = ("loss", "score", "score_by_class", "loss_by_class")
    columns: dict[str, list[Any]] = {f"{part}_{name}": [] for part in ("train", "valid") for name in names}
    for _ in range(passes):
        network.partial_fit(xt, yt, classes=np.arange(10))
        for part, rows, truth in (("train", xt, yt), ("valid", xv, yv)):
            probabilities = network.predict_proba(rows)
            wrong = probabilities.argmax(1) != truth
            columns[f"{part}_loss"].append(_log_loss(probabilities, truth))
            columns[f"{part}_score"].append(float(wrong.mean()))
            columns[f"{part}_score_by_class"].append(_by_class(wrong, truth, 10))
            losses = -np.log(np.maximum(probabilities[np.arange(len(truth)), truth], 1e-12))
            columns[f"{part}_loss_by_class"].append(_by_class(losses, truth, 10))
    task = Classes(np.arange(10))
    before = [network.predict_proba(rows) for rows in (xt, xv, xs)]
    temperature = min(np.geomspace(0.3, 3.0, 60), key=lambda t: _log_loss(_sharpened(before[1], t), yv))
    after = [_sharpened(probabilities, temperature) for probabilities in before]
    return Fit(
        recipe=defaults.classification(model=Mlp(widths=(32,)), optimiser=MovingAverage(Adam(learning_rate=0.003))),
        outcome=Outcome("patience", passes * len(yt)),
        task="classes",
        metric="error_rate",
        metrics={
            part: measure(task, probabilities, truth, None)
            for part, probabilities, truth in zip(("train", "valid", "test"), after, (yt, yv, ys), strict=True)
        },
        test_interval=metric_interval("error_rate", task, after[2], ys),
        history=_history(len(yt), columns),
        evidence=gather_evidence(task, before[2], after[2], ys, temperature=float(temperature)),
        data=DataRead(
            name="digits",
            target=("class",),
            rows=SetSizes(1079, 359, 359),
            split="HoldOut",
            columns=tuple(ColumnRead(f"pixel_{i // 8}_{i % 8}", "pixel", constant=i == 0) for i in range(64)),
            shape=(64,),
            scaling=("Pixels are divided by 16, their largest value in the training part.",),
            command="gradwise fit digits --seed 0 --set model.widths=32 --set optimiser.learning_rate=0.003",
        ),
        findings=(
            Finding("note", "1 column is constant in the training part.", "D10", "drop it with `--drop pixel_0_0`."),
            Finding(
                "warning",
                "the training error is far below the validation error: the network has room to spare.",
                "D2",
                "try weight decay, `--set criterion.penalties.0.coefficient=1`, or fewer units.",
            ),
        ),
        seconds=3.14,
        seed=0,
        version="0.1.0",
        machine=MACHINE,
    )


def train_numbers(passes: int = 40) -> Fit:
    """A small network on `diabetes`, with everything that a report shows of numbers."""
    from sklearn.datasets import load_diabetes
    from sklearn.neural_network import MLPRegressor

    source = load_diabetes()
    order = np.random.default_rng(1).permutation(len(source.target))
    x, y = source.data[order] * 20, source.target[order]
    (xt, xv, xs), (yt, yv, ys) = np.split(x, [265, 353]), np.split(y, [265, 353])
    mean, spread = yt.mean(), yt.std()
    network = MLPRegressor(hidden_layer_sizes=(24,), learning_rate_init=0.003, random_state=0, batch_size=32)
    columns: dict[str, list[Any]] = {f"{part}_{name}": [] for part in ("train", "valid") for name in ("loss", "score")}
    for _ in range(passes):
        network.partial_fit(xt, (yt - mean) / spread)
        for part, rows, truth in (("train", xt, yt), ("valid", xv, yv)):
            square = float(((network.predict(rows) - (truth - mean) / spread) ** 2).mean())
            columns[f"{part}_score"].append(square)
            columns[f"{part}_loss"].append(square / 2)
    task = Numbers(("progression",))
    guesses = [(network.predict(rows) * spread + mean)[:, None] for rows in (xt, xv, xs)]
    truths = [truth[:, None] for truth in (yt, yv, ys)]
    metrics = {
        part: measure(task, guess, truth, None)
        for part, guess, truth in zip(("train", "valid", "test"), guesses, truths, strict=True)
    }
    rmse = metrics["test"]["rmse"]
    return Fit(
        recipe=defaults.regression(model=Mlp(widths=(24,))),
        outcome=Outcome("patience", passes * len(yt)),
        task="numbers",
        metric="rmse",
        metrics=metrics,
        test_interval=metric_interval("rmse", task, guesses[2], truths[2]),
        history=_history(len(yt), columns),
        evidence=dataclasses.replace(
            gather_evidence(task, guesses[2], guesses[2], truths[2]),
            estimate=CrossValidationEstimate(
                "rmse",
                tuple(rmse * (0.93 + 0.04 * i) for i in range(5)),
                rmse * 1.01,
                (rmse * 0.95, rmse * 1.07),
            ),
        ),
        data=DataRead(
            name="diabetes",
            target=("progression",),
            rows=SetSizes(265, 88, 89),
            split="HoldOut",
            columns=tuple(
                ColumnRead(
                    name=name,
                    kind="category" if name == "sex" else "number",
                    missing=3 * (name == "s6"),
                    categories=2 * (name == "sex"),
                )
                for name in source.feature_names
            ),
            shape=(10,),
            scaling=(
                "Numbers are standardised by the mean and deviation of the training part.",
                "3 missing values of s6 were replaced by the median, with a column that says so.",
            ),
            command="gradwise fit diabetes.csv --target progression --folds 5",
        ),
        findings=(),
        seconds=1.27,
        seed=0,
        version="0.1.0",
        machine=MACHINE,
    )


@pytest.fixture(scope="session")
def classes_record() -> Fit:
    return train_classes()


@pytest.fixture(scope="session")
def numbers_record() -> Fit:
    return train_numbers()


class Browser:
    """Renders pages in frames of given widths and answers with what a script in the page around them saw."""

    def __init__(self, program: str, folder: Path):
        self.program, self.folder = program, folder

    def measure(self, pages: list[tuple[str, int]], look: str, *options: str) -> list[Any]:
        """For each page and width the value of the JavaScript expression `look`, in which `w` is the frame's window."""
        wrapper = (
            "<!doctype html><title>waiting</title><body><script>"
            f"const pages = {json.dumps(pages).replace('<', chr(92) + 'u003c')}, seen = [];\n"
            "pages.forEach(([text, width], i) => { const f = document.createElement('iframe');"
            "f.style = `width:${width}px;height:900px;border:0`; f.srcdoc = text;"
            f"f.onload = () => {{ const w = f.contentWindow; seen[i] = {look};"
            "if (Object.keys(seen).length === pages.length) document.title = JSON.stringify(seen); };"
            "document.body.append(f); });</script>"
        )
        file = self.folder / "wrapper.html"
        file.write_text(wrapper)
        quiet = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run")
        command = [self.program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", *quiet, *options]
        command += [f"--user-data-dir={self.folder / 'profile'}", "--virtual-time-budget=10000", "--dump-dom"]
        done = subprocess.run([*command, file.as_uri()], capture_output=True, text=True, timeout=120, check=True)
        title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
        assert title is not None, done.stdout[:500]
        return list(json.loads(html.unescape(title[1])))


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium on PATH: the page is not looked at in a real browser")
    return Browser(program, tmp_path)
