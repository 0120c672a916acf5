"""Text: sentences of film reviews, for or against, beside TF-IDF with logistic regression on the same rows.

    GRADWISE_DATA=... python benchmarks/text.py --folds 4 5 6 7 8 9

The 10,662 sentences of Pang and Lee (2005) in ten folds of fixed random order: each is tested by what was learned from
the other nine, of which gradwise holds a tenth back as validation set. The recipe was chosen on folds 0 to 3.
"""

import argparse
import datetime
import gzip
import json
import os
import platform
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import gradwise as gw
from gradwise.data.splits import HoldOut

FOLDS = 10
READERS = {"average": "AverageWords", "filters": "ConvolveWords", "gated units": "ReadWords"}
METHODS = ("average", "filters", "gated units", "TF-IDF", "TF-IDF of pairs")


def sentences() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sentences, their classes, and the fold of each."""
    texts: list[str] = []
    classes: list[str] = []
    for name in ("pos", "neg"):
        folder = Path(os.environ["GRADWISE_DATA"]) / "text_sentence_polarity"
        with gzip.open(folder / f"rt-polarity.{name}.txt.gz", "rt", encoding="utf-8") as file:
            lines = [line.strip() for line in file]
        texts += lines
        classes += [name] * len(lines)
    fold = np.empty(len(texts), int)
    fold[np.random.default_rng(0).permutation(len(texts))] = np.arange(len(texts)) % FOLDS
    return np.array(texts, dtype=object), np.array(classes), fold


def measure(method: str, train: tuple[Any, Any], test: tuple[Any, Any]) -> dict[str, float]:
    """Accuracy on the test fold, and seconds of processor time to learn."""
    begun = time.process_time()
    model: Any
    if method in READERS:
        split = HoldOut(valid=0.1, test=0.0)
        changes = {} if method == "average" else {"model.inputs.texts": READERS[method]}
        model = gw.fit(list(train[0]), train[1], split=split, set=changes, no_baselines=True, no_examples=True)
    else:
        words = TfidfVectorizer(ngram_range=(1, 2 if "pairs" in method else 1))
        model = make_pipeline(words, LogisticRegression(max_iter=1000)).fit(*train)
    seconds = time.process_time() - begun
    return {"accuracy": float(np.mean(model.predict(list(test[0])) == test[1])), "seconds": round(seconds, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", type=int, nargs="+", default=list(range(4, FOLDS)))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["average", "TF-IDF", "TF-IDF of pairs"])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "text.json")
    options = parser.parse_args()
    texts, classes, fold = sentences()
    methods: dict[str, list[dict[str, float]]] = {method: [] for method in options.methods}
    for number in options.folds:
        train, test = ((texts[rows], classes[rows]) for rows in (fold != number, fold == number))
        for method in options.methods:
            methods[method].append(measure(method, train, test))
            print(number, method, methods[method][-1], flush=True)
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    command = "python " + shlex.join(["benchmarks/text.py", *sys.argv[1:]])
    found = {"folds": options.folds, "methods": methods, "machine": machine, "command": command}
    options.out.write_text(json.dumps(found | {"date": str(datetime.date.today())}, indent=1) + "\n")


if __name__ == "__main__":
    main()
