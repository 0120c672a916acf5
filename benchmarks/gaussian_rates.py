"""The learning rate of Boltzmann machines with Gaussian visible units, their precisions fixed or learned (row A2).

    python benchmarks/gaussian_rates.py

Every rate trains the machine of `gradwise.learner("rbm", ...)` on standardised inputs, by heavy ball with momentum 0.9.
The rate is chosen on some sets and seeds, by the mean score-matching loss of test rows for each input, at least one
step below the first that diverged, and reported on others beside the rate that was a custom before. A machine without
hidden units would score -0.5. The error of a linear probe on the codes is told too; it decides nothing. Data are read
from `$GRADWISE_DATA`.
"""

import argparse
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from feature_sets import learned, load, probe_error, source

from gradwise.models.gaussian_visible import GaussianVisible
from gradwise.models.restricted_boltzmann import Rbm
from gradwise.optimisers.first_order.sgd import HeavyBall
from gradwise.pretraining.layer_recipes import learner
from gradwise.training.stopping import Patience

RATES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
CUSTOM = 0.002
UNITS = 256
EPOCHS = 50.0
KINDS = ("fixed", "learned")
CHOICE = {"sets": ("vehicle", "ionosphere", "texture", "wine", "digits", "spambase", "mnist"), "seeds": (0, 1)}
REPORT = {"sets": ("breast_cancer", "sonar", "glass", "vowel", "letter", "isolet1560"), "seeds": (10, 11, 12)}


def measured(name: str, seed: int, kind: str, rate: float) -> dict[str, float]:
    """The score of the test rows, for each input, and the probe's error; a run that diverged has none."""
    rows = load(name, seed, unit=False)
    recipe = dataclasses.replace(
        learner("rbm", UNITS, inputs=rows.train),
        model=Rbm(units=UNITS, visible=GaussianVisible(precisions=kind)),
        optimiser=HeavyBall(learning_rate=rate, momentum=0.9),
        stopping=Patience(epochs=EPOCHS),
    )
    record = learned(recipe, rows, seed)
    if record.outcome.failed or record.outcome.name == "diverged":
        return {"score": math.inf, "probe_error": math.nan}
    scores = record.predictor.network.pseudo_loss(rows.test)
    return {"score": float(np.mean(scores)) / rows.test.shape[1], "probe_error": probe_error(record, rows)}


def table(sets: tuple[str, ...], seeds: tuple[int, ...], rates: dict[str, tuple[float, ...]]) -> dict[str, Any]:
    """By kind, set and rate, what each seed measured."""
    found: dict[str, Any] = {kind: {} for kind in rates}
    for kind, tried in rates.items():
        for name in sets:
            found[kind][name] = {str(rate): [measured(name, seed, kind, rate) for seed in seeds] for rate in tried}
            told = {rate: f"{np.mean([one['score'] for one in each]):.3f}" for rate, each in found[kind][name].items()}
            print(kind, name, told, flush=True)
    return found


def chosen_rate(found: dict[str, Any]) -> float:
    """The rate with the lowest mean score over sets and seeds, at least one step below the first that ever diverged."""
    means = [np.mean([one["score"] for by_rate in found.values() for one in by_rate[str(rate)]]) for rate in RATES]
    first = next((place for place, mean in enumerate(means) if not math.isfinite(mean)), len(RATES) + 1)
    return RATES[int(np.argmin(means[: max(1, first - 1)]))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gaussian_rates.json"))
    given = parser.parse_args()
    choice = table(CHOICE["sets"], CHOICE["seeds"], dict.fromkeys(KINDS, RATES))
    rates = {kind: chosen_rate(choice[kind]) for kind in KINDS}
    print("chosen:", rates)
    tried = {kind: tuple(dict.fromkeys((CUSTOM, rates[kind]))) for kind in KINDS}
    reported = table(REPORT["sets"], REPORT["seeds"], tried)
    result: dict[str, Any] = {
        "units": UNITS,
        "epochs": EPOCHS,
        "custom": CUSTOM,
        "rates": rates,
        "choice": {**CHOICE, "measured": choice},
        "report": {**REPORT, "measured": reported},
        **source("gaussian_rates"),
    }
    given.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
