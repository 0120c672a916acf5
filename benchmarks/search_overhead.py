"""What does a trial cost beside its training? Ten thousand trials of a trivial objective: asked for, and stored.

    python benchmarks/search_overhead.py

Each trial is proposed by random search over a space of eight knobs, in batches of 64, and written to a journal file
with a curve of twenty points. Then the study is loaded as a report would load it.
"""

import argparse
import datetime
import json
import math
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

ASKED = {"milliseconds a trial": 1.5, "seconds to load the study": 5.0}
PATHS = (
    "batches.size",
    "model.widths.count",
    "model.widths.each",
    "model.dropout",
    "model.initial.scale",
    "criterion.penalties.0.coefficient",
    "optimiser.decay",
    "optimiser.optimiser.learning_rate",
)


def make_about() -> Any:
    from gradwise import defaults
    from gradwise.searching.storage.study_identity import StudyIdentity
    from gradwise.searching.strategies.random_search import Random
    from gradwise.specs.priors import Choice, LogInteger
    from gradwise.specs.search_space import Space, dimension

    recipe = defaults.classification()
    priors = {
        "model.widths.count": Choice((1, 2, 3), (0.5, 0.3, 0.2)),
        "model.widths.each": LogInteger(16, 1024),
    }
    space = Space(recipe, tuple(dimension(recipe, path, priors.get(path)) for path in PATHS))
    return StudyIdentity(space, 0, Random(), "a digest", "classes", "error_rate")


def ended(number: int, proposal: Any, space: Any) -> Any:
    """A trial that needed no training; one in fifty diverged."""
    from gradwise.records.trial import Trial
    from gradwise.specs.search_space import label

    values = {path: label(value) for path, value in space.values(proposal.recipe).items()}
    rate = values["optimiser.optimiser.learning_rate"]
    if number % 50 == 7:
        return Trial(number, proposal.recipe, values, "diverged", age_examples=640, reason="the loss is not a number")
    score = 0.02 + 0.01 * (math.log10(rate) + 2.5) ** 2
    curve = {
        "age_examples": [1000.0 * (i + 1) for i in range(20)],
        "valid_score": [score + 1 / (i + 2) for i in range(20)],
    }
    return Trial(number, proposal.recipe, values, "patience", score, score, score, 20_000, 18_000, 1.5, 10_000, curve)


def fill(path: Path, about: Any, trials: int, batch: int) -> dict[str, float]:
    """Asks and stores; the seconds of each."""
    from gradwise.runtime.keys import from_seed
    from gradwise.searching.storage.study_store import Store
    from gradwise.searching.strategies.contract import History

    key = from_seed(about.seed)
    spent = {"ask": 0.0, "store": 0.0}
    with Store.open(path, create=True, about=about) as store:
        about.strategy.ask(about.space, History(), 1, key=key)  # whatever is compiled once
        for first in range(0, trials, batch):
            start = time.perf_counter()
            count = min(batch, trials - first)
            proposals = about.strategy.ask(about.space, History(store.trials(), (), first), count, key=key)
            middle = time.perf_counter()
            done = [ended(first + place, proposal, about.space) for place, proposal in enumerate(proposals)]
            trained = time.perf_counter()
            for trial in done:
                store.add(trial)
            spent["ask"] += middle - start
            spent["store"] += time.perf_counter() - trained
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    chosen = parser.parse_args()
    from gradwise.searching.storage.study_store import Store

    about = make_about()
    before = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.journal"
        spent = fill(path, about, chosen.trials, chosen.batch)
        processor = time.process_time() - before  # the trivial objective included, waiting for the disk not
        start = time.perf_counter()
        with Store.open(path, write=False) as store:
            count = len(store.trials())
        loading = time.perf_counter() - start
        size = path.stat().st_size
    assert count == chosen.trials
    measured = {
        "milliseconds a trial": 1e3 * (spent["ask"] + spent["store"]) / chosen.trials,
        "seconds to load the study": loading,
    }
    print("| what | measured | asked |\n|---|---|---|")
    for name, value in measured.items():
        print(f"| {name} | {value:.2f} | < {ASKED[name]} |")
    result = {
        "measured": measured,
        "asked": ASKED,
        "trials": chosen.trials,
        "milliseconds": {name: 1e3 * value / chosen.trials for name, value in spent.items()},
        "processor_milliseconds": 1e3 * processor / chosen.trials,
        "bytes_a_trial": size / chosen.trials,
        "machine": f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": "python benchmarks/search_overhead.py",
    }
    print(
        f"of which asking {result['milliseconds']['ask']:.2f} ms and storing {result['milliseconds']['store']:.2f} ms"
    )
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "search_overhead.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
