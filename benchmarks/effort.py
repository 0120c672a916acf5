"""What are folds worth, and what are epochs? The recommended recipe in several numbers of folds and shares of its run.

    GRADWISE_DATA=... python benchmarks/effort.py                     development tables, three splits
    ... effort.py --sets phoneme,vehicle --out a.json --seconds 400   some of them, on cores of their own
    ... effort.py --join a.json b.json                                files of runs side by side, put into one

One trial each, whatever it takes: how a search divides a short time is read off this (`searching/running/effort.py`).
Tables of the report half are not looked at.
"""

import argparse
import datetime
import json
import math
import statistics
import sys
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import tables
from table_models import Machine
from table_sets import HALVES, split

OUT = Path(__file__).parent / "results" / "effort.json"
SETS = "phoneme,reg_abalone,reg_concrete,reg_kin8nm,reg_power_plant,reg_wine_quality,spambase,vehicle"
CHOICES = ((5, 1.0), (3, 1.0), (5, 0.5), (3, 0.5), (1, 1.0), (5, 0.25))  # folds, and the share of the epochs


def measure(sets: list[str], seeds: int, seconds: float) -> list[dict[str, Any]]:
    """The error of one trial's committee at each effort."""
    import gradwise
    from gradwise.searching import search
    from gradwise.searching.running.effort import Effort

    end, results = time.monotonic() + seconds, []
    for seed in range(seeds):
        for name in sets:
            part = split(name, seed)
            automatic = gradwise.AutoRegressor if part.kind == "numbers" else gradwise.AutoClassifier
            for folds, epochs in CHOICES:
                if time.monotonic() > end:
                    return results
                search.plan_effort = lambda *_, effort=Effort(folds, epochs), **__: effort  # type: ignore[assignment]
                model = automatic("1 trials", on=None, random_state=seed).fit(part.train, part.train_targets)
                took = sum(trial.seconds for trial in model.study_.trials)
                results.append(
                    {"set": name, "seed": seed, "folds": folds, "epochs": epochs, "seconds": took}
                    | {"kind": part.kind, "error": part.error(model.predict(part.test))}
                )
                print(json.dumps(results[-1]), flush=True)
    return results


def show(results: list[dict[str, Any]]) -> str:
    """Errors and seconds as multiples of those of five folds of whole runs, geometric means over tables."""
    found: dict[tuple[str, int], dict[tuple[int, float], dict[str, Any]]] = defaultdict(dict)
    for one in results:
        found[one["set"], one["seed"]][one["folds"], one["epochs"]] = one
    whole = {key: each for key, each in found.items() if len(each) == len(CHOICES)}
    lines = ["| folds | epochs | error, classes | error, numbers | seconds |", "|---|---|---|---|---|"]

    def mean(what: str, choice: tuple[int, float], kinds: tuple[str, ...]) -> str:
        by_set = defaultdict(list)
        for (name, _), each in whole.items():
            base = each[CHOICES[0]]
            if base["kind"] in kinds:
                by_set[name].append(math.log(each[choice][what] / base[what]))
        return f"{math.exp(statistics.fmean(map(statistics.fmean, by_set.values()))):.3f}" if by_set else ""

    for folds, epochs in CHOICES:
        errors = [mean("error", (folds, epochs), (kind,)) for kind in ("classes", "numbers")]
        seconds = mean("seconds", (folds, epochs), ("classes", "numbers"))
        lines.append(
            f"| {folds if folds > 1 else 'one validation set'} | {epochs:g} | {' | '.join(errors)} | {seconds} |"
        )
    sets = sorted({name for name, _ in whole})
    about = f"Multiples of the first line, geometric means over {', '.join(sets)}; {len(whole)} splits in all."
    return "\n".join([*lines, "", about])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin nothing after this")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--join", type=Path, nargs="+")
    options = parser.parse_args()
    sets = options.sets.split(",")
    if unknown := [name for name in sets if name not in HALVES["development"]]:
        sys.exit(f"not a development table: {', '.join(unknown)}")
    if options.join:
        files = [json.loads(path.read_text()) for path in options.join]
        result = {**files[0], "results": [one for file in files for one in file["results"]]}
    else:
        warnings.simplefilter("ignore")
        machine = tables.table_models.use(Machine())
        result = {
            "machine": tables.describe(machine),
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
            "command": "python benchmarks/effort.py",
            "results": measure(sets, options.seeds, options.seconds),
        }
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(show(result["results"]))


if __name__ == "__main__":
    main()
