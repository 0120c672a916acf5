"""How long does `make test` take, and how much memory does each of its processes need?

    python benchmarks/suite_time.py [--workers 2]

The quick tests run as `make test` runs them, from an empty compilation cache. Memory is the most that any process of
pytest held, looked at twice a second; what tests start themselves (workers, databases, a browser) is not counted.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ASKED = {"minutes": 10.0, "GiB per process": 3.0}
QUICK = "not slow and not gpu"


def _children(parent: int) -> list[int]:
    found = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(word) for word in found.read_text().split()] if found.exists() else []


def _resident_gib(process: int) -> float:
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError):  # it ended between two looks
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**30


def measure(workers: int) -> tuple[dict[str, float], str]:
    """Minutes and peak memory of the quick suite, and the last line that pytest printed."""
    command = [sys.executable, "-m", "pytest", "-n", str(workers), "--dist", "loadfile", "-m", QUICK]
    most, begun = 0.0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "output").open("w+") as output:
        environment = {**os.environ, "GRADWISE_CACHE": str(Path(folder) / "cache")}
        suite = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
        while suite.poll() is None:
            most = max([most, *(_resident_gib(process) for process in [suite.pid, *_children(suite.pid)])])
            time.sleep(0.5)
        minutes = (time.monotonic() - begun) / 60
        output.seek(0)
        last = output.read().strip().splitlines()[-1]
    if suite.returncode:
        raise SystemExit(f"the tests failed: {last}")
    return {"minutes": minutes, "GiB per process": most}, last


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    chosen = parser.parse_args()
    measured, last = measure(chosen.workers)
    print("| make test | measured | asked |\n|---|---|---|")
    for name, value in measured.items():
        print(f"| {name} | {value:.1f} | < {ASKED[name]:g} |")
    print(last)
    result = {
        "measured": measured,
        "asked": ASKED,
        "tests": last,
        "workers": chosen.workers,
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": "python benchmarks/suite_time.py",
    }
    (chosen.out / "suite_time.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
