"""Fits AutoGluon, or predicts with it, in a process of its own: its versions of pandas and others differ from ours.

    python autogluon_process.py fit FOLDER KIND SECONDS THREADS      FOLDER/train.npz -> FOLDER/model
    python autogluon_process.py predict FOLDER                       FOLDER/test.npz -> FOLDER/predicted.npy

Needs AutoGluon alone; `table_models.AutoGluon` writes and reads the files.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

TARGET = "target"


def load(path: Path) -> tuple[pd.DataFrame, np.ndarray | None]:
    """A frame, its columns of words as categories; and the targets, where the file has them."""
    with np.load(path) as stored:
        arrays = dict(stored)
    targets = arrays.pop(TARGET, None)
    columns: dict[str, Any] = {}
    for name, values in arrays.items():
        words = values.dtype.kind == "U"
        columns[name] = pd.Categorical(np.where(values == "", None, values)) if words else values
    return pd.DataFrame(columns), targets


def fit(folder: Path, kind: str, seconds: float, threads: int) -> None:
    """The default preset, for at most so many seconds, judged by the error that the benchmark reports."""
    from autogluon.tabular import TabularPredictor

    for library in ("catboost", "fastai.tabular.all", "lightgbm", "torch", "xgboost"):
        importlib.import_module(library)  # without one of them the preset would quietly be a lesser one
    frame, targets = load(folder / "train.npz")
    assert targets is not None
    classes = "binary" if np.unique(targets).size == 2 else "multiclass"
    problem = "regression" if kind == "numbers" else classes
    metric = "root_mean_squared_error" if kind == "numbers" else "accuracy"
    predictor = TabularPredictor(TARGET, problem, metric, path=str(folder / "model"), verbosity=1)
    predictor.fit(frame.assign(**{TARGET: targets}), time_limit=seconds, num_cpus=threads, num_gpus=0)
    print("AutoGluon trained", ", ".join(predictor.model_names()), flush=True)


def predict(folder: Path) -> None:
    from autogluon.tabular import TabularPredictor

    predictor = TabularPredictor.load(str(folder / "model"))
    np.save(folder / "predicted.npy", predictor.predict(load(folder / "test.npz")[0]).to_numpy())


def main() -> None:
    what, folder, *rest = sys.argv[1:]
    if what == "fit":
        kind, seconds, threads = rest
        fit(Path(folder), kind, float(seconds), int(threads))
    else:
        predict(Path(folder))


if __name__ == "__main__":
    main()
