"""How long until something happens? `--help`, `import gradwise`, and `gradwise fit digits`, cold and warm.

    python benchmarks/startup.py

Every command runs in a process of its own; the fastest of several counts, since the machine is noisy.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ASKED = {
    "--help": 0.4,
    "import gradwise, beyond JAX": 0.3,
    "fit digits, cold cache": 15.0,
    "fit digits, warm cache": 7.0,
}


def seconds(command: list[str], environment: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def fastest(command: list[str], environment: dict[str, str], rounds: int) -> float:
    return min(seconds(command, environment) for _ in range(rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    chosen = parser.parse_args()
    command = shutil.which("gradwise", path=str(Path(sys.executable).parent)) or "gradwise"
    measured: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        environment = {**os.environ, "GRADWISE_CACHE": str(cache)}
        fit = [command, "fit", "digits", "--out", str(Path(folder) / "run"), "--overwrite"]
        measured["--help"] = fastest([command, "--help"], environment, chosen.rounds)
        jax = fastest([sys.executable, "-c", "import jax"], environment, chosen.rounds)
        both = fastest([sys.executable, "-c", "import jax, gradwise"], environment, chosen.rounds)
        measured["import gradwise, beyond JAX"] = both - jax
        cold = []
        for _ in range(2):
            shutil.rmtree(cache, ignore_errors=True)
            cold.append(seconds(fit, environment))
        measured["fit digits, cold cache"] = min(cold)
        measured["fit digits, warm cache"] = fastest(fit, environment, chosen.rounds)
    print("| what | seconds | asked |\n|---|---|---|")
    for name, value in measured.items():
        print(f"| {name} | {value:.2f} | < {ASKED[name]} |")
    chosen.out.mkdir(parents=True, exist_ok=True)
    result = {
        "seconds": measured,
        "asked": ASKED,
        "machine": f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": "python benchmarks/startup.py",
    }
    (chosen.out / "startup.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
