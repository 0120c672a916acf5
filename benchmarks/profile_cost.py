"""What `--profile` costs: paired runs of `gradwise fit` with and without it, in turn, each a process of its own.

    python benchmarks/profile_cost.py [--pairs 8]

The time is that of the processor, of all threads from the start of the process to its end: it is hardly disturbed by
what else the machine does. All runs find their programs in the compilation cache, as the runs of somebody who tunes
do; what the profile itself says that it took is told too, of a run that had to compile its program as well.
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
from pathlib import Path
from typing import Any

CASES = {
    "digits": ["digits"],
    "digits, 1000 epochs": ["digits", "--set", "stopping=Off", "--set", "stopping.epochs=1000"],
    "breast-cancer": ["breast-cancer"],
}
ASKED = 0.02


def measure(words: list[str], profile: bool) -> tuple[float, float]:
    """The processor's seconds for a fit, and the share of its time that the profile says it took itself."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "gradwise", "fit", *words, "--quiet", "--out", f"{folder}/run"]
        child = subprocess.Popen([*command, *(["--profile"] if profile else [])], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"{' '.join(command)} ended with code {child.returncode}")
        own = 0.0
        if profile:
            phases = json.loads(Path(f"{folder}/run/profile.json").read_text())["phases"]
            own = next(one["share"] for one in phases if one["name"] == "this profile")
        return usage.ru_utime + usage.ru_stime, own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    chosen = parser.parse_args()
    found: dict[str, Any] = {}
    for name, words in CASES.items():
        with tempfile.TemporaryDirectory() as cache:
            os.environ["GRADWISE_CACHE"] = cache
            measure(words, False)
            first = measure(words, True)[1]
            pairs, own = [], []
            for number in range(chosen.pairs):
                order = (False, True) if number % 2 else (True, False)
                taken = {profile: measure(words, profile) for profile in order}
                pairs.append([taken[False][0], taken[True][0]])
                own.append(taken[True][1])
        costs = [with_it / without - 1 for without, with_it in pairs]
        error = statistics.stdev(costs) / math.sqrt(len(costs))
        found[name] = {"pairs": pairs, "cost": statistics.mean(costs), "error": error}
        found[name] |= {"own": statistics.median(own), "own_first": first}
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
