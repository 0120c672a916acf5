"""The models that `tables.py` compares, as a user would type them, and the default with one thing changed at a time.

    MODELS["realmlp"]("classes", seed=0, machine=Machine())    something with `fit` and `predict`
    alternatives("numbers")["no dropout"]("numbers", seed=0, machine=Machine())

Peers are imported when they are asked for. AutoGluon, whose pandas is older than ours, runs in the Python that
`GRADWISE_AUTOGLUON_PYTHON` names, or in this one where it has it.
"""

import dataclasses
import functools
import importlib.util
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Machine:
    """What a model may use."""

    threads: int = 2
    device: str = "cpu"
    search_seconds: float = 50.0


def gradwise(kind: str, seed: int, machine: Machine) -> Any:
    import gradwise

    return (gradwise.Regressor if kind == "numbers" else gradwise.Classifier)(random_state=seed)


def search(kind: str, seed: int, machine: Machine) -> Any:
    """The default search for as long as the peers have, a process on each core."""
    import gradwise

    automatic = gradwise.AutoRegressor if kind == "numbers" else gradwise.AutoClassifier
    return automatic(f"{machine.search_seconds:g}s", on=None, random_state=seed)


def mlp(kind: str, seed: int, machine: Machine) -> Any:
    """Scikit-learn's network behind the preparation that it needs."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    words = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    ready = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), make_column_selector(dtype_include="number")),
        (words, make_column_selector(dtype_include="category")),
    )
    network = MLPRegressor if kind == "numbers" else MLPClassifier
    return make_pipeline(ready, network(early_stopping=True, random_state=seed))


def hist(kind: str, seed: int, machine: Machine) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    boosting = HistGradientBoostingRegressor if kind == "numbers" else HistGradientBoostingClassifier
    return boosting(categorical_features="from_dtype", random_state=seed)


def lightgbm(kind: str, seed: int, machine: Machine, **settings: Any) -> Any:
    from lightgbm import LGBMClassifier, LGBMRegressor

    boosting = LGBMRegressor if kind == "numbers" else LGBMClassifier
    return boosting(random_state=seed, n_jobs=machine.threads, verbose=-1, **settings)


class LightgbmSearch:
    """A random search over LightGBM for a given time; the best settings are then trained on all rows.

    Tables of under 5,000 rows are judged in five folds, others on one of them. The number of trees is early stopping's.
    """

    def __init__(self, kind: str, seed: int, machine: Machine):
        self.kind, self.seed, self.machine = kind, seed, machine

    def fit(self, X: Any, y: Any) -> Any:
        end = time.perf_counter() + self.machine.search_seconds
        folds = self._folds(X, y)
        draw = np.random.default_rng(self.seed)
        best: Any = None
        while best is None or time.perf_counter() < end:
            settings = self._draw(draw) if best else {}  # the defaults come first
            score, trees = self._judge(settings, X, y, folds)
            if best is None or score < best[0]:
                best = score, {**settings, "n_estimators": trees}
        self.model = lightgbm(self.kind, self.seed, self.machine, **best[1]).fit(X, y)
        return self

    def predict(self, X: Any) -> Any:
        return self.model.predict(X)

    def _folds(self, X: Any, y: Any) -> list[Any]:
        from sklearn.model_selection import KFold, StratifiedKFold

        splitter = KFold if self.kind == "numbers" else StratifiedKFold
        folds = list(splitter(5, shuffle=True, random_state=self.seed).split(X, y))
        return folds if len(X) < 5000 else folds[:1]

    @staticmethod
    def _draw(draw: np.random.Generator) -> dict[str, Any]:
        def log(low: float, high: float) -> float:
            return float(np.exp(draw.uniform(np.log(low), np.log(high))))

        return {
            "learning_rate": log(0.02, 0.3),
            "num_leaves": round(log(4, 256)),
            "min_child_samples": round(log(2, 100)),
            "colsample_bytree": draw.uniform(0.4, 1.0),
            "subsample": draw.uniform(0.5, 1.0),
            "subsample_freq": 1,
            "reg_alpha": log(1e-6, 10.0),
            "reg_lambda": log(1e-6, 10.0),
        }

    def _judge(self, settings: dict[str, Any], X: Any, y: Any, folds: list[Any]) -> tuple[Any, int]:
        """The mean error, then the mean loss, of rows left out; and the mean number of trees that it took."""
        from lightgbm import early_stopping

        errors, losses, trees = [], [], []
        for learned, judged in folds:
            model = lightgbm(self.kind, self.seed, self.machine, **settings, n_estimators=2000)
            aside = X.iloc[judged], y[judged]
            stops = [early_stopping(50, verbose=False), self._time_limit(self.machine.search_seconds / 5 / len(folds))]
            model.fit(X.iloc[learned], y[learned], eval_X=aside[0], eval_y=aside[1], callbacks=stops)
            predicted = model.predict(aside[0])
            wrong = (predicted - aside[1]) ** 2 if self.kind == "numbers" else predicted != aside[1]
            errors.append(np.mean(wrong))
            losses += model.best_score_["valid_0"].values()
            trees.append(model.best_iteration_ or model.n_estimators_)
        return (np.mean(errors), np.mean(losses)), max(1, round(np.mean(trees)))

    @staticmethod
    def _time_limit(seconds: float) -> Callable[[Any], None]:
        """No candidate may take more than a fifth of the search."""
        from lightgbm.callback import EarlyStopException

        end = time.perf_counter() + seconds

        def stop(env: Any) -> None:
            if time.perf_counter() > end:
                raise EarlyStopException(env.iteration, env.evaluation_result_list)

        stop.order = 40  # type: ignore[attr-defined]  # after early stopping
        return stop


@functools.cache
def autogluon_python() -> str | None:
    """The Python that has AutoGluon, if one is known."""
    if named := os.environ.get("GRADWISE_AUTOGLUON_PYTHON"):
        return named
    found = importlib.util.find_spec("autogluon") and importlib.util.find_spec("autogluon.tabular")
    return sys.executable if found else None


class AutoGluon:
    """AutoGluon's default preset on the CPU, its time limit that of the search; starting its Python comes on top."""

    def __init__(self, kind: str, seed: int, machine: Machine):
        self.kind, self.machine = kind, machine
        self.folder = tempfile.TemporaryDirectory(prefix="autogluon")

    def fit(self, X: Any, y: Any) -> Any:
        self._save(X, "train.npz", target=y)
        self._run("fit", self.kind, f"{self.machine.search_seconds:g}", str(self.machine.threads))
        return self

    def predict(self, X: Any) -> Any:
        self._save(X, "test.npz")
        self._run("predict")
        return np.load(Path(self.folder.name) / "predicted.npy")

    def _save(self, X: Any, name: str, **more: Any) -> None:
        """One array a column: numbers as they are, words as text, empty where one is missing."""
        columns = {}
        for column, values in X.items():
            words = values.astype(object).where(values.notna(), "") if values.dtype == "category" else None
            columns[str(column)] = values.to_numpy(float) if words is None else words.to_numpy(str)
        np.savez(Path(self.folder.name) / name, **columns, **more)

    def _run(self, what: str, *arguments: str) -> None:
        python = autogluon_python()
        if python is None:
            raise ImportError("AutoGluon is not installed: set GRADWISE_AUTOGLUON_PYTHON to a Python that has it")
        script = Path(__file__).with_name("autogluon_process.py")
        # Its packages are not ours, and it is compared on the CPU.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment["CUDA_VISIBLE_DEVICES"] = ""
        command = [python, str(script), what, self.folder.name, *arguments]
        subprocess.run(command, check=True, env=environment, stdout=sys.stderr)


def _pytabkit(name: str, **settings: Any) -> Callable[[str, int, Machine], Any]:
    def make(kind: str, seed: int, machine: Machine) -> Any:
        logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
        import pytabkit

        model = getattr(pytabkit, f"{name}_{'Regressor' if kind == 'numbers' else 'Classifier'}")
        return model(device=machine.device, random_state=seed, n_threads=machine.threads, verbosity=0, **settings)

    return make


MODELS: dict[str, Callable[[str, int, Machine], Any]] = {
    "gradwise": gradwise,
    "mlp": mlp,
    "hist": hist,
    "lightgbm": lightgbm,
    "lightgbm-search": LightgbmSearch,
    "realmlp": _pytabkit("RealMLP_TD"),
    "tabm": _pytabkit("TabM_D"),
}
# What is compared where each may take the same time; the first two are ours.
SEARCHES: dict[str, Callable[[str, int, Machine], Any]] = {
    "search": search,
    "gradwise": gradwise,
    "lightgbm-search": LightgbmSearch,
    "realmlp-5": _pytabkit("RealMLP_TD", n_cv=5),
    "autogluon": AutoGluon,
}
TAKES_SECONDS = ("search", "lightgbm-search", "autogluon")  # the others take what they take
TITLES = {
    "search": "gradwise search",
    "gradwise": "gradwise",
    "mlp": "scikit-learn's network",
    "hist": "HistGradientBoosting",
    "lightgbm": "LightGBM",
    "lightgbm-search": "LightGBM, random search",
    "realmlp": "RealMLP-TD",
    "realmlp-5": "RealMLP-TD, 5 folds averaged",
    "autogluon": "AutoGluon, default preset",
    "tabm": "TabM-D",
}
# These know one target only.
NO_LABELS = {"hist", "lightgbm", "lightgbm-search", "realmlp", "realmlp-5", "autogluon", "tabm"}


def _changes(kind: str, rows: int | None = None) -> dict[str, dict[str, Any]]:
    """What each alternative sets in the default recipe for a table of so many rows, by path."""
    from gradwise import defaults
    from gradwise.data.scaling import NormalScores
    from gradwise.models.activations import Parametric, Rectifier
    from gradwise.models.input_stage import NoEmbedding, PeriodicRectified, PiecewiseLinear
    from gradwise.models.shared_weights import SharedWeights
    from gradwise.optimisers.adaptive.adam import Adam
    from gradwise.optimisers.first_order.schedules import Constant, Cosine, OneCycle
    from gradwise.training.stopping import Patience

    recipe = defaults.table(kind, rows)
    epochs, width, adam = recipe.stopping.epochs, recipe.model.widths[0], "optimiser.optimiser"
    constant = {"model.dropout_schedule": Constant(), f"{adam}.decay_schedule": Constant()}
    standard = {"model.parametrisation": "standard", f"{adam}.learning_rate": Adam().learning_rate}
    unsmoothed = {"no label smoothing": {"criterion.loss.label_smoothing": 0.0}}
    return {
        "default": {},
        "numbers not embedded": {"model.inputs.numbers": NoEmbedding()},
        "piecewise-linear embedding": {"model.inputs.numbers": PiecewiseLinear()},
        "rectified periodic embedding": {"model.inputs.numbers": PeriodicRectified()},
        "no factor of inputs": {"model.inputs.factor": False},
        "standard parametrisation at the general rate": standard,
        "activation without slopes": {"model.activation": recipe.model.activation.activation},
        "rectifier": {"model.activation": Parametric(Rectifier())},
        **(unsmoothed if kind == "classes" else {}),
        "no weight decay": {f"{adam}.decay": 0.0},
        "no dropout": {"model.dropout": 0.0},
        "dropout and decay constant": constant,
        "one falling cosine": {f"{adam}.schedule": Cosine(horizon_updates=0.0, final=0.0)},
        "one cycle": {f"{adam}.schedule": OneCycle()},
        "normal scores": {"scaler.numbers": NormalScores()},
        "best epoch": {"stopping.significance": 0.0},
        "last epoch": {"stopping.keep": "last"},
        "patience": {"stopping": Patience(epochs=epochs, least_examples=1)},
        "half the epochs": {"stopping.epochs": epochs / 2},
        "twice the epochs": {"stopping.epochs": epochs * 2},
        "half the width": {"model.widths": (width // 2,) * 3},
        "twice the width": {"model.widths": (width * 2,) * 3},
        "2 layers": {"model.widths": (width,) * 2},
        "4 layers": {"model.widths": (width,) * 4},
        "residual": {"model.residual": True},
        "4 members of shared weights": {"model": SharedWeights(recipe.model, members=4)},
    }


class ChangedDefault:
    """The default for tables with other values at some paths of its recipe: at those that an alternative names."""

    def __init__(self, kind: str, seed: int, changes: Callable[[int], dict[str, Any]]):
        self.kind, self.seed, self.changes = kind, seed, changes

    def fit(self, X: Any, y: Any) -> Any:
        from gradwise import Classifier, Regressor, defaults
        from gradwise.specs.paths import replace

        recipe = defaults.table(self.kind, len(X))
        for path, value in self.changes(len(X)).items():
            recipe = replace(recipe, path, value)
        parts = {slot: getattr(recipe, slot) for slot in ("model", "optimiser", "batches", "criterion", "scaler")}
        estimator = Regressor if self.kind == "numbers" else Classifier
        self.model = estimator(**parts, stopping=recipe.stopping, random_state=self.seed).fit(X, y)
        return self

    def predict(self, X: Any) -> Any:
        return self.model.predict(X)


def alternatives(kind: str) -> dict[str, Callable[[str, int, Machine], Any]]:
    """The default, and the default with one thing changed at a time, as models."""

    def model(name: str) -> Callable[[str, int, Machine], Any]:
        return lambda kind, seed, machine: ChangedDefault(kind, seed, lambda rows: _changes(kind, rows)[name])

    return {name: model(name) for name in _changes(kind)}


def as_long_as_realmlp(kind: str, seed: int, machine: Machine) -> Any:
    """The default with RealMLP-TD's epochs, batches and layers, to compare seconds."""
    changes = {"stopping.epochs": 256.0, "batches.size": 256, "model.widths": (256, 256, 256)}
    return ChangedDefault(kind, seed, lambda rows: changes)


def use(machine: Machine) -> Machine:
    """Holds this process to the machine's cores and device; called before anything heavy is imported."""
    cores = sorted(os.sched_getaffinity(0))[: machine.threads]
    os.sched_setaffinity(0, cores)
    if machine.device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    return dataclasses.replace(machine, threads=len(cores))
