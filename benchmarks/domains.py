"""Sentiment across domains (Glorot, Bordes and Bengio 2011): features of all domains, a classifier of one.

    python benchmarks/domains.py [--units 256] [--epochs 12]

Reviews of books, DVDs, electronics and kitchen appliances (`$GRADWISE_DATA/text_amazon_blitzer`), words as 0 or 1. A
denoising auto-encoder learns without labels on the training rows of all four, by sampled reconstruction. A logistic
regression learns on the labels of one domain, from the words or from the features, and is tested on another. The
share of masked words and the classifier's C are chosen on held-out rows of the source domain alone. With e(S, T) the
error on T after learning on S and b(T, T) that of words within T, the transfer loss is e(S, T) - b(T, T), and the
transfer ratio the mean of e(S, T) / b(T, T) over the twelve pairs.
"""

import argparse
import datetime
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack, vstack
from sklearn.linear_model import LogisticRegression

import gradwise as gw

DOMAINS = ("books", "dvd", "electronics", "kitchen")
LEVELS = (0.3, 0.7)
STRENGTHS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
HELD_OUT = 400  # of the 2,000 labelled rows of a source


def load() -> dict[str, dict[str, Any]]:
    """Words and labels of the training and test rows of each domain."""
    with np.load(Path(os.environ["GRADWISE_DATA"]) / "text_amazon_blitzer" / "amazon5000.npz") as held:
        arrays = {name: held[name] for name in held.files}
    found: dict[str, dict[str, Any]] = {}
    for domain in DOMAINS:
        found[domain] = {}
        for part in ("train", "test"):
            own = {piece: arrays[f"{domain}_{part}_{piece}"] for piece in ("data", "indices", "indptr", "shape", "y")}
            ones = np.ones(len(own["data"]))
            words = csr_matrix((ones, own["indices"].astype(np.int32), own["indptr"]), shape=tuple(own["shape"]))
            found[domain][part] = (words, own["y"] > 0)
    return found


def learn(rows: Any, level: float, options: argparse.Namespace) -> Any:
    features = gw.DenoisingAutoEncoder(
        model=gw.MlpAutoEncoder(widths=(options.units,), activation=gw.Rectifier()),
        criterion=gw.Reconstruction(corruption=gw.Masking(level)),
        optimiser=gw.Adagrad(0.03),
        batches=gw.Reshuffled(20),
        stopping=gw.Off(epochs=options.epochs),
        random_state=0,
    )
    return features.fit(rows)


def best_classifier(inputs: Any, labels: np.ndarray) -> tuple[float, Any]:
    """Error on the held-out rows of a source, and the classifier with the best C, learned on all its rows."""
    learned = slice(0, len(labels) - HELD_OUT)
    judged = slice(len(labels) - HELD_OUT, len(labels))
    errors = {}
    for strength in STRENGTHS:
        model = LogisticRegression(C=strength, max_iter=300).fit(inputs[learned], labels[learned])
        errors[strength] = float(np.mean(model.predict(inputs[judged]) != labels[judged]))
    chosen = min(errors, key=lambda strength: errors[strength])
    return errors[chosen], LogisticRegression(C=chosen, max_iter=300).fit(inputs, labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=256)
    parser.add_argument("--epochs", type=float, default=12.0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "domains.json")
    options = parser.parse_args()
    data = load()
    shuffled = {}
    for domain in DOMAINS:  # files are sorted by label
        order = np.random.default_rng(0).permutation(len(data[domain]["train"][1]))
        shuffled[domain] = tuple(each[order] for each in data[domain]["train"])
    begun = time.perf_counter()
    everything = vstack([shuffled[domain][0] for domain in DOMAINS]).tocsr()
    learners = {level: learn(everything, level, options) for level in LEVELS}
    seconds = time.perf_counter() - begun
    views: dict[str, list[Any]] = {"words": [lambda rows: rows]}
    views["features"] = [one.transform for one in learners.values()]
    views["both"] = [
        lambda rows, one=one: hstack([rows, csr_matrix(one.transform(rows))]).tocsr() for one in learners.values()
    ]
    errors: dict[str, dict[str, dict[str, float]]] = {}
    for name, several in views.items():
        errors[name] = {}
        for source in DOMAINS:
            words, labels = shuffled[source]
            found = [(*best_classifier(view(words), labels), view) for view in several]
            _, model, view = min(found, key=lambda one: one[0])
            tests = {target: data[target]["test"] for target in DOMAINS}
            errors[name][source] = {
                target: float(np.mean(model.predict(view(rows)) != truth)) for target, (rows, truth) in tests.items()
            }
        print(name, errors[name], flush=True)
    pairs = [(source, target) for source in DOMAINS for target in DOMAINS if source != target]
    own = {target: errors["words"][target][target] for target in DOMAINS}
    summary = {
        name: {
            "loss": float(np.mean([by[source][target] - own[target] for source, target in pairs])),
            "ratio": float(np.mean([by[source][target] / own[target] for source, target in pairs])),
        }
        for name, by in errors.items()
    }
    print(summary, f"{seconds:.0f} s for the features")
    result = {
        "errors": errors,
        "summary": summary,
        "seconds": seconds,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, mean load {os.getloadavg()[2]:.1f}",
        "date": str(datetime.date.today()),
        "command": "python benchmarks/domains.py",
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
