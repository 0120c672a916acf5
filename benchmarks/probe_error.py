"""Does noise make better features? Linear-probe errors of denoising beside plain auto-encoder layers (row A5).

    python benchmarks/probe_error.py

Both learn one layer without labels by the recipe of `gradwise.learner`, from the same rows and the same first weights;
then a logistic regression reads the codes. The level of masking noise is chosen on other sets and other seeds than
those that are reported. Data are read from `$GRADWISE_DATA`.
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from feature_sets import learned, load, probe_error, source

from gradwise.criteria.corruption import Masking
from gradwise.pretraining.layer_recipes import learner
from gradwise.training.stopping import Patience

LEVELS = (0.1, 0.25, 0.5)
UNITS = 200
EPOCHS = 60.0
CHOICE = {"sets": ("digits", "vehicle", "ionosphere", "vowel"), "seeds": (0, 1)}
REPORT = {"sets": ("usps", "mnist", "isolet1560", "letter", "dna", "sonar"), "seeds": tuple(range(10, 15))}


def error_of(name: str, seed: int, level: float) -> float:
    """The probe's error on the codes of one layer; a level of 0 is the plain auto-encoder."""
    recipe = learner("plain", UNITS)
    if level:
        recipe = dataclasses.replace(recipe, criterion=dataclasses.replace(recipe.criterion, corruption=Masking(level)))
    recipe = dataclasses.replace(recipe, stopping=Patience(epochs=EPOCHS))
    rows = load(name, seed, unit=True)
    return probe_error(learned(recipe, rows, seed), rows)


def errors(
    sets: tuple[str, ...], seeds: tuple[int, ...], levels: tuple[float, ...]
) -> dict[str, dict[str, list[float]]]:
    """By set and level, the error of each seed."""
    found: dict[str, dict[str, list[float]]] = {}
    for name in sets:
        found[name] = {str(level): [error_of(name, seed, level) for seed in seeds] for level in levels}
        print(name, {level: f"{np.mean(each):.2%}" for level, each in found[name].items()}, flush=True)
    return found


def chosen_level(found: dict[str, dict[str, list[float]]]) -> float:
    """The level with the lowest mean over the sets of its error in units of the plain auto-encoder's."""
    plain = {name: float(np.mean(each["0.0"])) for name, each in found.items()}
    means = {level: np.mean([np.mean(found[name][str(level)]) / plain[name] for name in found]) for level in LEVELS}
    return min(means, key=lambda level: means[level])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/probe_error.json"))
    given = parser.parse_args()
    choice = errors(CHOICE["sets"], CHOICE["seeds"], (0.0, *LEVELS))
    level = chosen_level(choice)
    print(f"chosen: {level}")
    reported = errors(REPORT["sets"], REPORT["seeds"], (0.0, level))
    result: dict[str, Any] = {
        "units": UNITS,
        "epochs": EPOCHS,
        "levels": LEVELS,
        "level": level,
        "choice": {**CHOICE, "errors": choice},
        "report": {**REPORT, "errors": reported},
        **source("probe_error"),
    }
    given.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
