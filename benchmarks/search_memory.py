"""Does a long search stay flat? A thousand trivial trials in one process: its memory and its memory maps on the way.

    python benchmarks/search_memory.py

Two searches of iris, two epochs a trial, each in a process of its own that trains where it runs: the default search of
a table, and random draws of two layers of 8 to 512 units each, which are some eighty programs. The resident memory and
the lines of `/proc/self/maps` are read on the way: compiled programs are mapped, and Linux ends a process that has
65,530 maps. Flat means that the most of the last 500 trials is less than 5 % above the most of those before.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CASES = ("default search", "random widths")
EVERY = 100  # trials a reading stands for
LAST = 500
GROWTH = 0.05


def read_process() -> dict[str, float]:
    """What this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    maps = Path("/proc/self/maps").read_text().count("\n")
    return {"megabytes": pages * os.sysconf("SC_PAGE_SIZE") / 1e6, "maps": maps}


def make_search(case: str) -> tuple[Any, Any, Any]:
    """The data, the space and the strategy of a case."""
    import dataclasses

    import numpy as np
    from sklearn.datasets import load_iris

    import gradwise as gw
    from gradwise.portfolio import portfolio_of

    x, y = load_iris(return_X_y=True)
    dataset = gw.Dataset(x, y, gw.Classes(np.arange(3)))
    if case == CASES[0]:
        recipe = gw.defaults.for_search(dataset)
        recipe = dataclasses.replace(recipe, stopping=dataclasses.replace(recipe.stopping, epochs=2.0))
        space = gw.defaults.search_space(recipe, dataset)
        return dataset, dataclasses.replace(space, portfolio=portfolio_of(recipe)), gw.Recommended()
    model = gw.Mlp(widths=(64, 64), dropout=0.0)
    recipe = gw.defaults.classification(model=model, optimiser=gw.Sgd(0.1), stopping=gw.Off(epochs=2.0))
    found = (
        gw.dimension(recipe, "optimiser.learning_rate"),
        *(gw.dimension(recipe, f"model.widths.{layer}", gw.LogInteger(8, 512)) for layer in range(2)),
    )
    return dataset, gw.Space(recipe, found), gw.Random()


def run_case(case: str, trials: int) -> None:
    """Prints the most that the process held during every hundred trials, a line each."""
    import jax

    import gradwise as gw
    from gradwise.searching.search import run_study

    dataset, space, strategy = make_search(case)
    seen = 0
    most = read_process()

    def watch(news: dict[str, Any]) -> None:
        nonlocal seen, most
        if news["done"] < min(trials, seen + 5):
            return
        now = read_process()
        most = {name: max(value, now[name]) for name, value in most.items()}
        if news["done"] // EVERY > seen // EVERY:
            print(json.dumps({"trials": news["done"], **most, "seconds": news["seconds"]}), flush=True)
            most = now
        seen = news["done"]

    with tempfile.TemporaryDirectory() as folder:
        run_study(
            space,
            dataset,
            strategy=strategy,
            budget=gw.Budget(trials=trials),
            key=jax.random.key(0),
            plan=gw.SearchPlan(folds=1, refine=False, borders=False),
            options=gw.StudyOptions(folder=Path(folder), on="here", watch=watch),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--case", choices=CASES, help="run this one here and print its readings")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    chosen = parser.parse_args()
    if chosen.case:
        run_case(chosen.case, chosen.trials)
        return
    readings: dict[str, list[dict[str, float]]] = {}
    growth: dict[str, dict[str, float]] = {}
    for case in CASES:
        readings[case] = []
        command = [sys.executable, __file__, "--case", case, "--trials", str(chosen.trials)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for line in child.stdout:
                readings[case].append(json.loads(line))
                print(case, readings[case][-1], flush=True)
        if child.returncode:
            sys.exit(f"the search of {case} ended with code {child.returncode}")
        late = [one for one in readings[case] if one["trials"] > readings[case][-1]["trials"] - LAST]
        early = [one for one in readings[case] if one not in late]
        growth[case] = {
            name: max(one[name] for one in late) / max(one[name] for one in early) - 1 for name in ("megabytes", "maps")
        }
    for case, grown in growth.items():
        told = ", ".join(f"{name} {value:+.1%}" for name, value in grown.items())
        print(f"{case}: the last {LAST} trials add {told} (wanted: < {GROWTH:.0%})")
    result = {
        "readings": readings,
        "growth": growth,
        "asked": GROWTH,
        "last": LAST,
        "machine": f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": "python benchmarks/search_memory.py",
    }
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "search_memory.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
