"""How long until something happens? `--help`, `import gradwise`, `gradwise fit digits`, and small cross-validations.

    python benchmarks/startup.py

Every command runs in a process of its own; the fastest of several counts, since the machine is noisy. Python keeps its
compiled modules, as for users from the second start on. A cross-validation is timed twice in one process: `cold`
is the first one with an empty cache of compiled programs, `warm` the second. Beside `Classifier()` stand scikit-learn's
network and, where Keras is installed, a Keras-on-JAX network of the same size and length; imports are in no one's time.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ASKED = {
    "--help": 0.4,
    "import gradwise, beyond JAX": 0.3,
    "fit digits, cold cache": 15.0,
    "fit digits, warm cache": 3.5,
    "breast-cancer in 5 folds, cold": 5.0,
    "breast-cancer in 5 folds, warm": 2.0,
    "iris in 5 folds, cold": 5.0,
    "iris in 5 folds, warm": 1.0,
}
PEERS = ("gradwise", "scikit-learn", "Keras on JAX")
FOLDS = """
import json, os, sys, time, warnings
os.environ["KERAS_BACKEND"] = "jax"
warnings.simplefilter("ignore")
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.model_selection import cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

def gradwise():
    import gradwise
    return gradwise.Classifier(random_state=0)

def scikit_learn():
    return make_pipeline(StandardScaler(), MLPClassifier(max_iter=1000, random_state=0))

def keras():
    import keras
    from keras import layers
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Network(ClassifierMixin, BaseEstimator):
        def fit(self, X, y):
            keras.utils.set_random_seed(0)
            self.classes_ = sorted(set(y))
            hidden = [layers.Dense(128, "relu") for _ in range(3)]
            self.model_ = keras.Sequential([*hidden, layers.Dense(len(self.classes_))])
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            self.model_.compile("adam", loss, jit_compile=True)
            self.model_.fit(X, y, validation_split=0.1, epochs=64, batch_size=128, verbose=0)
            return self
        def predict(self, X):
            return self.model_.predict(X, verbose=0).argmax(1)

    return make_pipeline(StandardScaler(), Network())

name, peer = sys.argv[1:]
X, y = {"breast-cancer": load_breast_cancer, "iris": load_iris}[name](return_X_y=True)
model = {"gradwise": gradwise, "scikit-learn": scikit_learn, "Keras on JAX": keras}[peer]()
told = []
for _ in range(2):
    start = time.perf_counter()
    right = cross_val_score(model, X, y, cv=5).mean()
    told.append(time.perf_counter() - start)
print(json.dumps({"cold": told[0], "warm": told[1], "error": 1 - right}))
"""


def seconds(command: list[str], environment: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def fastest(command: list[str], environment: dict[str, str], rounds: int) -> float:
    return min(seconds(command, environment) for _ in range(rounds))


def folds(name: str, peer: str, environment: dict[str, str], rounds: int) -> dict[str, float] | None:
    """The fastest cold and warm cross-validation, and its error; None where the peer is not installed."""
    told: list[dict[str, float]] = []
    for _ in range(rounds):
        shutil.rmtree(environment["GRADWISE_CACHE"], ignore_errors=True)
        command = [sys.executable, "-c", FOLDS, name, peer]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode and "No module named 'keras'" in done.stderr:
            return None
        done.check_returncode()
        told.append(json.loads(done.stdout.splitlines()[-1]))
    return {key: min(one[key] for one in told) for key in told[0]}


def measure_commands(folder: str, environment: dict[str, str], rounds: int) -> dict[str, float]:
    """The command line: help, import, and a fit with an empty and with a full cache."""
    command = shutil.which("gradwise", path=str(Path(sys.executable).parent)) or "gradwise"
    fit = [command, "fit", "digits", "--out", str(Path(folder) / "run"), "--overwrite"]
    jax = fastest([sys.executable, "-c", "import jax"], environment, rounds)
    both = fastest([sys.executable, "-c", "import jax, gradwise"], environment, rounds)
    cold = []
    for _ in range(2):
        shutil.rmtree(environment["GRADWISE_CACHE"], ignore_errors=True)
        cold.append(seconds(fit, environment))
    return {
        "--help": fastest([command, "--help"], environment, rounds),
        "import gradwise, beyond JAX": both - jax,
        "fit digits, cold cache": min(cold),
        "fit digits, warm cache": fastest(fit, environment, rounds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    chosen = parser.parse_args()
    peers: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        # Python's own cache of compiled modules is on, as users have it, and beside the source tree.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"GRADWISE_CACHE": str(Path(folder) / "cache"), "PYTHONPYCACHEPREFIX": str(Path(folder) / "pyc")}
        measured = measure_commands(folder, environment, chosen.rounds)
        for name in ("breast-cancer", "iris"):
            found = {peer: folds(name, peer, environment, min(3, chosen.rounds)) for peer in PEERS}
            peers[name] = {peer: told for peer, told in found.items() if told is not None}
            for when in ("cold", "warm"):
                measured[f"{name} in 5 folds, {when}"] = peers[name]["gradwise"][when]
    print("| what | seconds | asked |\n|---|---|---|")
    for name, value in measured.items():
        print(f"| {name} | {value:.2f} | < {ASKED[name]} |")
    print("\n| five folds | model | cold | warm | error |\n|---|---|---|---|---|")
    for name, found in peers.items():
        for peer, told in found.items():
            print(f"| {name} | {peer} | {told['cold']:.1f} | {told['warm']:.1f} | {told['error']:.1%} |")
    chosen.out.mkdir(parents=True, exist_ok=True)
    result = {
        "seconds": measured,
        "asked": ASKED,
        "folds": peers,
        "machine": f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": "python benchmarks/startup.py",
    }
    (chosen.out / "startup.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
