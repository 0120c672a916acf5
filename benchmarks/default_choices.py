"""Why these defaults? Each alternative differs from the default recipe in one thing, over several data sets and seeds.

    GRADWISE_DATA=... python benchmarks/default_choices.py                      about 40 minutes on 2 cores
    GRADWISE_DATA=... python benchmarks/default_choices.py --workers 8         on 16 cores, 2 for each worker

Prints the mean *validation* score of each alternative (defaults must not be chosen on test parts), the mean change
against the default in units of its standard error over seeds, and the seconds.
"""

import argparse
import datetime
import json
import math
import multiprocessing
import os
import platform
import time
from pathlib import Path
from typing import Any

SETS = (
    "digits",
    "california-housing",
    "letter",
    "reg_kin8nm",
    "spambase",
    "reg_concrete",
    "vehicle",
    "reg_wine_quality",
)


def alternatives() -> dict[str, dict[str, Any]]:
    """One changed part, or a few that belong together, by name."""
    from gradwise.data.batches import Reshuffled
    from gradwise.data.scaling import Automatic, NormalScores, Standardise
    from gradwise.models.activations import Tanh
    from gradwise.models.mlp import LayerNorm, Mlp
    from gradwise.optimisers.adaptive.adam import Adam
    from gradwise.optimisers.averaging.parameter_average import MovingAverage
    from gradwise.optimisers.first_order.sgd import Nesterov
    from gradwise.training.stopping import Patience, Times

    return {
        "default": {},
        "B = 32": {"batches": Reshuffled(32)},
        "B = 128": {"batches": Reshuffled(128)},
        "rate 0.0005": {"optimiser": MovingAverage(Adam(0.0005))},
        "rate 0.003": {"optimiser": MovingAverage(Adam(0.003))},
        "no average": {"optimiser": Adam()},
        "Nesterov 0.03, averaged": {"optimiser": MovingAverage(Nesterov(0.03))},
        "no dropout": {"model": Mlp(dropout=0.0)},
        "dropout 0.3": {"model": Mlp(dropout=0.3)},
        "one layer": {"model": Mlp(widths=(256,))},
        "three layers": {"model": Mlp(widths=(256, 256, 256))},
        "512 units": {"model": Mlp(widths=(512, 512))},
        "tanh": {"model": Mlp(activation=Tanh())},
        "layer normalisation": {"model": Mlp(normalisation=LayerNorm())},
        "standardise every column": {"scaler": Automatic(numbers=Standardise())},
        "rank every column": {"scaler": Automatic(numbers=NormalScores(bend=0.0))},
        "patience x 2": {"stopping": Patience(growth=Times(2.0))},
    }


def run_one(job: tuple[str, str, int]) -> dict[str, Any]:
    import gradwise
    from gradwise import defaults
    from gradwise.runtime import keys

    name, alternative, seeds = job
    path = Path(os.environ.get("GRADWISE_DATA", ".")) / "tabular" / f"{name}.npz"
    dataset = gradwise.read(str(path) if path.exists() else name)
    recipe = defaults.for_task(dataset.task, **alternatives()[alternative])
    metric = "r2" if dataset.task.kind == "numbers" else "error_rate"
    start = time.perf_counter()
    results = [gradwise.train(recipe, dataset, key=keys.from_seed(seed)) for seed in range(seeds)]
    return {
        "set": name,
        "alternative": alternative,
        "metric": metric,
        "valid": [result.metrics["valid"][metric] for result in results],
        "test": [result.metrics["test"][metric] for result in results],
        "seconds": (time.perf_counter() - start) / seeds,
    }


def _settle(cores: Any) -> None:
    """Gives a worker two cores of its own."""
    mine = cores.get()
    os.sched_setaffinity(0, mine)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def show(rows: list[dict[str, Any]]) -> str:
    """One line an alternative: its validation score on each set, better than the default by two errors in bold."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    found = {(row["alternative"], row["set"]): row for row in rows}
    lines = ["| | " + " | ".join(sets) + " | seconds |", "|---" * (len(sets) + 2) + "|"]
    for alternative in dict.fromkeys(row["alternative"] for row in rows):
        cells, seconds = [], []
        for name in sets:
            row, base = found.get((alternative, name)), found.get(("default", name))
            if row is None or base is None:
                cells.append("")
                continue
            gap = [a - b for a, b in zip(row["valid"], base["valid"], strict=True)]
            gap = [-g for g in gap] if row["metric"] == "error_rate" else gap
            mean = _mean(gap)
            error = math.sqrt(sum((g - mean) ** 2 for g in gap) / max(1, len(gap) - 1) / len(gap))
            mark = "**" if mean > 2 * error > 0 else "_" if mean < -2 * error < 0 else ""
            value = _mean(row["valid"])
            cells.append(mark + (f"{value:.2%}" if row["metric"] == "error_rate" else f"{value:.3f}") + mark)
            seconds.append(row["seconds"] / base["seconds"])
        lines.append(f"| {alternative} | " + " | ".join(cells) + f" | {_mean(seconds):.1f}× |" if seconds else "|")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--max-seconds", type=float, default=math.inf, help="start no run after this")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    chosen = parser.parse_args()
    jobs = [(name, alternative, chosen.seeds) for alternative in alternatives() for name in chosen.sets]
    context = multiprocessing.get_context("spawn")
    cores = context.Queue()
    have = sorted(os.sched_getaffinity(0))
    for worker in range(chosen.workers):
        cores.put({have[(2 * worker) % len(have)], have[(2 * worker + 1) % len(have)]})
    rows, start = [], time.perf_counter()
    chosen.out.mkdir(parents=True, exist_ok=True)
    with context.Pool(chosen.workers, _settle, (cores,)) as pool:
        for row in pool.imap_unordered(run_one, jobs):
            rows.append(row)
            print(row["set"], row["alternative"], f"{_mean(row['valid']):.4f}", f"{row['seconds']:.1f} s", flush=True)
            if time.perf_counter() - start > chosen.max_seconds:
                pool.terminate()
                break
    rows.sort(key=lambda row: jobs.index((row["set"], row["alternative"], chosen.seeds)))
    result = {
        "rows": rows,
        "machine": f"{platform.processor() or platform.machine()}, 2 cores for each run",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": "python benchmarks/default_choices.py",
    }
    (chosen.out / "default_choices.json").write_text(json.dumps(result, indent=2) + "\n")
    print(show(rows))


if __name__ == "__main__":
    main()
