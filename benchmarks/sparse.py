"""Sparse inputs: a network beside scikit-learn's on the same rows, and the memory of very wide ones.

    python benchmarks/sparse.py [--epochs 5] [--sets w8a 20newsgroups books]

Each training is a process of its own; its peak is what the system says that it held at most (`ru_maxrss`), data and
libraries included. All networks have one hidden layer of 64 units, mini-batches of 64 and as many epochs; seconds are
those of the whole fit, compilation included, and of an epoch without it. The last line is 100,000 rows of 1,000,000
columns with 100 non-zeros each, of which dense 32-bit numbers would be 400 GB.
"""

import argparse
import datetime
import gzip
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SETS = ("w8a", "20newsgroups", "books")
METHODS = ("gradwise", "MLPClassifier", "SGDClassifier")
UNITS, BATCH = 64, 64


def load(name: str) -> tuple[Any, Any, Any, Any]:
    """Training rows and classes, test rows and classes."""
    import numpy as np
    from scipy.sparse import csr_matrix
    from sklearn.datasets import load_svmlight_file

    folder = Path(os.environ["GRADWISE_DATA"])
    if name == "w8a":  # no test set of its own: each fifth row
        with gzip.open(folder / "libsvm_w8a" / "w8a.libsvm.gz") as file:
            rows, classes = load_svmlight_file(file)
        test = np.arange(len(classes)) % 5 == 0
        return rows[~test], classes[~test].astype(int), rows[test], classes[test].astype(int)
    if name == "wide":
        random = np.random.default_rng(0)
        count, width, each = 102_000, 1_000_000, 100
        columns = random.integers(0, width, (count, each), dtype=np.int32)
        classes = random.integers(0, 2, count)
        columns[:, :5] = random.integers(0, 500, (count, 5)) + 500 * classes[:, None]
        starts = np.arange(0, count * each + 1, each, dtype=np.int32)
        rows = csr_matrix((np.ones(count * each, np.float32), columns.ravel(), starts), shape=(count, width))
        rows.sum_duplicates()
        return rows[:-2000], classes[:-2000], rows[-2000:], classes[-2000:]
    file = "text_20newsgroups/bow.npz" if name == "20newsgroups" else "text_amazon_blitzer/amazon5000.npz"
    with np.load(folder / file) as arrays:
        parts = ("train", "test") if name == "20newsgroups" else (f"{name}_train", f"{name}_test")
        found = []
        for part in parts:
            data, indices, starts, shape = (arrays[f"{part}_{end}"] for end in ("data", "indices", "indptr", "shape"))
            found.append(csr_matrix((data.astype(np.float32), indices.astype(np.int32), starts), shape))
            found.append(np.ravel(arrays[f"y_{part}" if name == "20newsgroups" else f"{part}_y"]).astype(int))
    return found[0], found[1], found[2], found[3]


def train(name: str, method: str, epochs: int) -> dict[str, Any]:
    """One training, here: its seconds, its error on the test rows and the most memory this process held."""
    rows, classes, new, answers = load(name)
    if method == "gradwise":
        import numpy as np

        import gradwise as gw

        wide = {"optimiser": gw.Sgd(0.5)} if name == "wide" else {}
        begun = time.monotonic()
        model = gw.fit(
            (rows, classes),
            model=gw.Mlp(widths=(4 if name == "wide" else UNITS,), dropout=0.0),
            batches=gw.Reshuffled(BATCH),
            stopping=gw.Off(epochs=float(epochs)),
            split=gw.HoldOut(0.05, 0.0),
            seed=1,
            no_baselines=True,
            no_examples=True,
            **wide,
        )
        seconds = time.monotonic() - begun
        history = model.record.history
        pace = np.diff(history["seconds"]) / np.diff(history["age_examples"])  # the median leaves out what compiles
        epoch = float(np.median(pace)) * len(classes) if len(pace) else seconds / epochs
        predicted = model.predict(new)
    else:
        from sklearn.linear_model import SGDClassifier
        from sklearn.neural_network import MLPClassifier

        if method == "MLPClassifier":
            fitted: Any = MLPClassifier((UNITS,), batch_size=BATCH, max_iter=epochs, random_state=1)
        else:
            fitted = SGDClassifier(loss="log_loss", max_iter=epochs, tol=None, random_state=1)
        begun = time.monotonic()
        predicted = fitted.fit(rows, classes).predict(new)
        seconds = time.monotonic() - begun
        epoch = seconds / epochs
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    error = float((predicted != answers).mean())
    return {"set": name, "method": method, "seconds": seconds, "epoch": epoch, "error": error, "peak": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "sparse.json")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(train(*options.one, options.epochs)))
        return
    runs = []
    wanted = [(name, method, options.epochs) for name in options.sets for method in METHODS] + [("wide", METHODS[0], 1)]
    for name, method, epochs in wanted:
        command = [sys.executable, "-W", "ignore", __file__, "--one", name, method, "--epochs", str(epochs)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        runs.append(json.loads(done.stdout.splitlines()[-1]))
        print(runs[-1], flush=True)
    result = {
        "runs": runs,
        "epochs": options.epochs,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, mean load {os.getloadavg()[2]:.1f}",
        "date": str(datetime.date.today()),
        "command": "python benchmarks/sparse.py",
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
