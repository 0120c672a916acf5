"""What `--profile` costs: paired runs of `gradwise fit` with and without it, in turn, each a process of its own.

    python benchmarks/profile_cost.py [--pairs 8]

The time is that of the process, from its start to its end. All runs find their programs in the compilation cache, as
the runs of somebody who tunes do; the profile's own program is compiled once before, and its cost is told too.
"""

import argparse
import datetime
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CASES = {
    "digits": ["digits"],
    "digits, 200 epochs": ["digits", "--set", "stopping=Off", "--set", "stopping.epochs=200"],
    "california-housing": ["california-housing"],
}
ASKED = 0.02


def seconds_of(words: list[str], profile: bool) -> float:
    """How long a fit takes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "gradwise", "fit", *words, "--quiet", "--out", f"{folder}/run"]
        begun = time.perf_counter()
        subprocess.run([*command, *(["--profile"] if profile else [])], check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    chosen = parser.parse_args()
    found: dict[str, Any] = {}
    for name, words in CASES.items():
        seconds_of(words, False)  # both fill the cache
        first = seconds_of(words, True)
        pairs = []
        for number in range(chosen.pairs):
            order = (False, True) if number % 2 else (True, False)
            taken = {profile: seconds_of(words, profile) for profile in order}
            pairs.append([taken[False], taken[True]])
        costs = [with_it / without - 1 for without, with_it in pairs]
        error = statistics.stdev(costs) / math.sqrt(len(costs))
        found[name] = {"pairs": pairs, "first": first, "cost": statistics.mean(costs), "error": error}
        print(f"{name}: {found[name]['cost']:+.1%} ± {error:.1%} (wanted: < {ASKED:.0%})", flush=True)
    result = {
        "cases": found,
        "asked": ASKED,
        "machine": f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": "python benchmarks/profile_cost.py",
    }
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "profile_cost.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
