"""The hyper-learner unattended on ten unlike data sets, beside scikit-learn: the same time on the same two cores.

    python benchmarks/hyperlearner.py                         all ten, one after another: about an hour and a half
    python benchmarks/hyperlearner.py --sets digits,german    some of them
    python benchmarks/hyperlearner.py --beside 8              so many sets at once, two cores each, on a larger machine

Every learner gets the same training rows (80 %) and is judged once on the same others (20 %), with the same seed:

    gradwise       `search` with a budget of time and nothing else
    network        scikit-learn's MLPClassifier / MLPRegressor as it comes, on standardised columns
    random search  RandomizedSearchCV over that network, in rounds of four candidates until the same time is over
    boosting       HistGradientBoosting as it comes

Categories are one-hot for scikit-learn's networks. The number is the error rate, or the root of the mean squared error.
"""

import argparse
import concurrent.futures
import datetime
import json
import math
import os
import platform
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SETS = (
    "digits",
    "breast-cancer",
    "german",
    "phoneme",
    "spambase",
    "vehicle",
    "letter",
    "reg_concrete",
    "reg_kin8nm",
    "reg_california_housing",
)


def load(name: str, folder: Path) -> Any:
    """A data set as gradwise reads it."""
    from gradwise.data.reading.read import ReadRequest, read

    if name in {"digits", "breast-cancer"}:
        return read(name, ReadRequest())
    if name == "german":
        return read(str(folder / "german.csv.gz"), ReadRequest(targets=("x21",)))  # the file names no columns
    kind = {"task": "numbers"} if name.startswith("reg_") else {"task": "classes"}
    return read(str(folder / f"{name}.npz"), ReadRequest(**kind))


def parts(dataset: Any, seed: int) -> tuple[Any, Any]:
    """Four fifths to learn from, one fifth to be judged by; classes spread evenly."""
    import numpy as np
    from sklearn.model_selection import train_test_split

    rows = np.arange(len(dataset))
    classes = dataset.targets if dataset.task.kind == "classes" else None
    learned, judged = train_test_split(rows, test_size=0.2, random_state=seed, stratify=classes)
    return dataset.take(learned), dataset.take(judged)


def flat(dataset: Any) -> Any:
    """The inputs as scikit-learn wants them: one row an example."""
    return dataset.inputs.reshape(len(dataset), -1)


def error(dataset: Any, predicted: Any) -> float:
    """The error rate of labels, the root mean squared error of numbers."""
    import numpy as np

    if dataset.task.kind == "classes":
        return float(np.mean(np.asarray(predicted) != dataset.targets))
    return float(np.sqrt(np.mean((np.asarray(predicted).reshape(dataset.targets.shape) - dataset.targets) ** 2)))


def run_gradwise(train: Any, test: Any, seconds: float, seed: int) -> dict[str, Any]:
    from gradwise import defaults
    from gradwise.data.splits import HoldOut
    from gradwise.runtime import keys
    from gradwise.searching.search import StudyOptions, run_study
    from gradwise.searching.storage.budget import Budget

    recipe = defaults.for_search(train, split=HoldOut(test=0.0))
    began = time.perf_counter()
    study = run_study(
        defaults.search_space(recipe, train),
        train,
        budget=Budget(seconds=seconds),
        key=keys.from_seed(seed),
        options=StudyOptions(on="workers:2"),
    )
    spent = time.perf_counter() - began
    predicted = study.predictor.predict(test.inputs)
    found = error(test, predicted.argmax(1) if test.task.kind == "classes" else predicted)
    return {"error": found, "seconds": spent, "trials": len(study.trials), "values": study.winner.values}


def network_of(train: Any, seed: int) -> Any:
    """Scikit-learn's network behind the preparation that it needs."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    words = [n for n, column in enumerate(train.columns) if column.kind == "category"]
    numbers = [n for n in range(flat(train).shape[1]) if n not in words]
    ready = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), words),
    )
    kind = MLPClassifier if train.task.kind == "classes" else MLPRegressor
    return make_pipeline(ready, kind(random_state=seed))


def run_network(train: Any, test: Any, seed: int) -> dict[str, Any]:
    began = time.perf_counter()
    fitted = network_of(train, seed).fit(flat(train), train.targets.squeeze())
    return {"error": error(test, fitted.predict(flat(test))), "seconds": time.perf_counter() - began}


def run_random_search(train: Any, test: Any, seconds: float, seed: int) -> dict[str, Any]:
    from scipy.stats import loguniform
    from sklearn.model_selection import RandomizedSearchCV

    step = network_of(train, seed).steps[-1][0]
    ranges = {
        f"{step}__hidden_layer_sizes": [(w,) * d for d in (1, 2, 3) for w in (32, 64, 128, 256)],
        f"{step}__learning_rate_init": loguniform(1e-4, 1e-1),
        f"{step}__alpha": loguniform(1e-6, 1e0),
        f"{step}__activation": ["relu", "tanh"],
        f"{step}__early_stopping": [False, True],
    }
    began = time.perf_counter()
    best: Any = None
    tried, longest = 0, 0.0
    while best is None or time.perf_counter() - began + longest < seconds:
        start = time.perf_counter()
        search = RandomizedSearchCV(
            network_of(train, seed), ranges, n_iter=4, cv=3, n_jobs=2, random_state=seed + tried, error_score=-math.inf
        )
        search.fit(flat(train), train.targets.squeeze())
        tried += 4
        longest = max(longest, time.perf_counter() - start)
        if best is None or search.best_score_ > best.best_score_:
            best = search
    spent = time.perf_counter() - began
    return {"error": error(test, best.predict(flat(test))), "seconds": spent, "trials": tried}


def run_boosting(train: Any, test: Any, seed: int) -> dict[str, Any]:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    words = [column.kind == "category" for column in train.columns]
    kind = HistGradientBoostingClassifier if train.task.kind == "classes" else HistGradientBoostingRegressor
    began = time.perf_counter()
    options = {"categorical_features": words} if any(words) else {}
    fitted = kind(random_state=seed, **options).fit(flat(train), train.targets.squeeze())
    return {"error": error(test, fitted.predict(flat(test))), "seconds": time.perf_counter() - began}


def run_set(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """All learners on one set."""
    warnings.simplefilter("ignore")
    train, test = parts(load(name, options.data / "tabular"), options.seed)
    found = {"gradwise": run_gradwise(train, test, options.seconds, options.seed)}
    found["network"] = run_network(train, test, options.seed)
    found["boosting"] = run_boosting(train, test, options.seed)
    found["random search"] = run_random_search(train, test, options.seconds, options.seed)
    return {"name": name, "rows": len(train) + len(test), "task": train.task.kind, "learners": found}


def alone(name: str, place: int, options: argparse.Namespace) -> dict[str, Any]:
    """One set in a process of its own, on two cores of its own."""
    cores = sorted(os.sched_getaffinity(0))
    mine = cores[(2 * place) % len(cores) :][:2] if len(cores) >= 4 else cores
    command = [sys.executable, __file__, "--sets", name, "--seconds", str(options.seconds), "--seed", str(options.seed)]
    command += ["--data", str(options.data), "--one"]
    pinned = ["taskset", "-c", ",".join(map(str, mine)), *command]
    told = subprocess.run(pinned, capture_output=True, text=True, check=False)
    lines = [line for line in told.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"{name}: {told.stderr[-2000:]}")
    row: dict[str, Any] = json.loads(lines[-1])
    errors = ", ".join(f"{learner} {one['error']:.4g}" for learner, one in row["learners"].items())
    print(f"{name}: {errors}", flush=True)
    return row


def wins(rows: list[dict[str, Any]], learner: str) -> int:
    return sum(row["learners"]["gradwise"]["error"] < row["learners"][learner]["error"] for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beside", type=int, default=1)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("GRADWISE_DATA", "../shared/data")))
    parser.add_argument("--one", action="store_true", help="one set in this process, told as JSON")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"
    names = options.sets.split(",")
    if options.one:
        print(json.dumps(run_set(names[0], options)))
        return
    with concurrent.futures.ThreadPoolExecutor(options.beside) as pool:
        rows = list(pool.map(lambda pair: alone(pair[1], pair[0], options), enumerate(names)))
    both = sum(
        all(
            row["learners"]["gradwise"]["error"] < row["learners"][peer]["error"]
            for peer in ("network", "random search")
        )
        for row in rows
    )
    record = {
        "command": f"python benchmarks/hyperlearner.py --seconds {options.seconds:g}",
        "machine": f"2 cores of {platform.machine()}",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "seconds": options.seconds,
        "rows": rows,
        "wins": {peer: wins(rows, peer) for peer in ("network", "random search", "boosting")} | {"both": both},
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "hyperlearner.json").write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record["wins"]))


if __name__ == "__main__":
    main()
