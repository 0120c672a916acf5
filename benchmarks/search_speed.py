"""How long does a search take from the prompt to the answer, with nothing compiled yet and with everything compiled?

    python benchmarks/search_speed.py --data /path/to/data                    MNIST, phoneme and iris
    python benchmarks/search_speed.py --data /path/to/data --what mnist --xla=--xla_gpu_autotune_level=0 --unroll 1

`--data` is the folder that `GRADWISE_DATA` names elsewhere: it holds `mnist/` and `tabular/phoneme.npz`. Every search
runs in a process of its own, first with an empty cache of compiled programs, then with the cache that it left and with
another seed, so other trials. JAX itself says which programs it compiled and for how long (`JAX_LOG_COMPILES`); several
are compiled side by side, so these seconds add up to more than passed. A program counts as compiled if it is new in the
cache. The share of the time that the device was busy is the driver's, sampled five times a second from the end of the
last compilation of an interval until the command ends; on a CPU it is processor seconds over cores and seconds, for the
whole command.

`--unroll` and `--xla` are for choosing settings: updates in one turn of the compiled loop, and flags for XLA.
"""

import argparse
import collections
import ctypes
import datetime
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ASKED = {"mnist": 60.0, "phoneme": 60.0, "iris": 15.0}
BUSY = 0.8  # asked of the device once everything is compiled
RUN = """
import sys
from gradwise.training import interval
unroll = int(sys.argv.pop(1))
if unroll:
    interval._UNROLL_POPULATION = unroll
from gradwise.cli.main import run_program
sys.exit(run_program())
"""
COMPILED = re.compile(r"Finished XLA compilation of (?:jit\()?([\w<>.]+)\)? in ([\d.e+-]+) sec")


def arguments(name: str, data: Path, trials: int) -> list[str]:
    """The search as one types it."""
    asked = {
        "mnist": ["mnist", "--trials", str(trials or 64)],
        "phoneme": [str(data / "tabular" / "phoneme.npz"), "--trials", str(trials or 100), "--folds", "5"],
        "iris": ["iris", "--trials", str(trials or 20)],
    }
    return ["search", *asked[name]]


class _Utilisation(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Samples:
    """How busy NVIDIA's driver says that the first device is, five times a second; nothing where there is none."""

    def __init__(self) -> None:
        self.read: list[tuple[float, float]] = []
        self._ended = threading.Event()
        try:
            self._driver: Any = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:  # no such device here
            return
        self._device = ctypes.c_void_p()
        if self._driver.nvmlInit_v2() == 0:
            asked = self._driver.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._device))
            if asked == 0:
                threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        found = _Utilisation()
        while not self._ended.wait(0.2):
            if self._driver.nvmlDeviceGetUtilizationRates(self._device, ctypes.byref(found)) == 0:
                self.read.append((time.monotonic(), found.gpu / 100))

    def mean(self, since: float) -> float | None:
        """The mean from this moment on."""
        shares = [share for moment, share in self.read if moment >= since]
        return sum(shares) / len(shares) if shares else None

    def close(self) -> None:
        self._ended.set()


def entries(cache: Path) -> collections.Counter[str]:
    """Compiled programs in the cache, by the name of their function."""
    return collections.Counter(path.name.split("-")[0] for path in cache.glob("*-cache"))


def timed(
    command: list[str], environment: dict[str, str], cache: Path, log: Path, limit: float = 3600.0
) -> dict[str, Any]:
    """One search: its seconds, what it compiled, and how busy the device was afterwards. It is stopped at the limit."""
    before, samples = entries(cache), Samples()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    compiling: dict[str, list[float]] = collections.defaultdict(list)
    began = time.monotonic()
    compiled_at = began
    with log.open("w") as kept:
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        assert process.stderr is not None
        stopping = threading.Timer(limit, process.kill)
        stopping.start()
        for line in process.stderr:
            kept.write(f"{time.monotonic() - began:8.2f} {line}")
            found = COMPILED.search(line)
            if found:
                compiling[found[1]].append(float(found[2]))
                if found[1] in {"_interval", "_turns"}:
                    compiled_at = time.monotonic()
        code = process.wait()
        stopping.cancel()
    ended = time.monotonic()
    stopped = ended - began >= limit
    samples.close()
    if code and not stopped:
        raise SystemExit(f"{' '.join(command)} ended with {code}:\n{log.read_text()[-4000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    new = entries(cache) - before
    busy = samples.mean(compiled_at)
    if busy is None:
        busy = processor / (ended - began) / len(os.sched_getaffinity(0))
    return {
        "seconds": ended - began,
        **({"stopped": True} if stopped else {}),
        "processor_seconds": processor,
        "programs": sum(new.values()),
        "interval_programs": sum(new[f"jit_{name}"] for name in ("_interval", "_turns")),
        "programs_by_name": dict(new.most_common()),
        "seconds_compiling": sum(map(sum, compiling.values())),
        "seconds_compiling_by_name": {name: round(sum(each), 3) for name, each in compiling.items() if sum(each) > 0.5},
        "last_interval_compiled_at": compiled_at - began,
        "busy": busy,
    }


def tell(what: str, one: dict[str, Any], asked: float) -> None:
    """One search in two lines."""
    print(f"{what}: {one['seconds']:.1f} s (asked {asked:.0f}); {one['programs']} programs compiled,", end=" ")
    print(f"{one['interval_programs']} of them intervals, {one['seconds_compiling']:.1f} s in the compiler,", end=" ")
    print(f"the last interval after {one['last_interval_compiled_at']:.1f} s;", end=" ")
    print(f"device busy {one['busy']:.0%} (asked {BUSY:.0%})")
    print(f"  compiling: {one['seconds_compiling_by_name']}", flush=True)


def measured(name: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """A search with an empty cache and one with the cache that it left."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="search-speed-") as folder:
        cache = Path(folder) / "cache"
        cache.mkdir()
        path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        flags = " ".join([os.environ.get("XLA_FLAGS", ""), *chosen.xla]).strip()
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "GRADWISE_CACHE": str(cache),
            "GRADWISE_DATA": str(chosen.data),
            "XLA_FLAGS": flags,
            "JAX_LOG_COMPILES": "1",
        }
        for state in chosen.states.split(","):
            asked = arguments(name, chosen.data, chosen.trials)
            options = ["--quiet", "--out", str(Path(folder) / state), *(["--on", chosen.on] if chosen.on else [])]
            options += ["--seed", str(chosen.seed + (state == "warm"))]
            log = (chosen.logs or Path(folder)) / f"{name}-{state}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-c", RUN, str(chosen.unroll), *asked, *options]
            found[state] = timed(command, environment, cache, log, chosen.limit)
            tell(f"{name}, {state}", found[state], ASKED[name])
    return {"arguments": arguments(name, Path("$GRADWISE_DATA"), chosen.trials), "asked": ASKED[name], **found}


def table(result: dict[str, Any]) -> str:
    """Every search in a line, what was asked beside what was measured."""
    lines = ["| search | from an empty cache | with its programs | asked | programs | device busy | asked |"]
    lines.append("|" + "---|" * 7)
    for one in result["searches"].values():
        command = " ".join(["gradwise", *one["arguments"]])
        cells = []
        for state in ("cold", "warm"):
            told = one.get(state, {})
            cells.append("" if not told else f"{'> ' if told.get('stopped') else ''}{told['seconds']:.0f} s")
        last = one.get("warm", one["cold"])
        busy = "" if "busy" not in last else f"{last['busy']:.0%}"
        programs = one["cold"].get("programs", "")
        lines.append(
            f"| `{command}` | {' | '.join(cells)} | {one['asked']:.0f} s | {programs} | {busy} | "
            f"{result['asked']['busy']:.0%} |"
        )
    return "\n".join(lines)


def device() -> tuple[str, str]:
    """The kind of the device that JAX would use, and its name; asked in another process, which gives it back."""
    asked = "import jax; d = jax.devices()[0]; print(d.platform, d.device_kind, sep='\\n')"
    told = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True).stdout.splitlines()
    cores = f"{len(os.sched_getaffinity(0))} cores of {platform.machine()}"
    return ("cpu", cores) if told[0] == "cpu" else ("gpu", f"{told[1]}, {cores}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--what", default=",".join(ASKED), help="of mnist, phoneme and iris, comma-separated")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("GRADWISE_DATA", "data")))
    parser.add_argument("--on", help="who trains, as in `gradwise search --on`; its own choice by default")
    parser.add_argument("--trials", type=int, default=0, help="64, 100 and 20 by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--states", default="cold,warm", help="with an empty cache, and with the one that it left")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds after which a search is stopped")
    parser.add_argument("--unroll", type=int, default=0, help="updates in one turn of a population's loop")
    parser.add_argument("--xla", action="append", default=[], help="a flag for XLA, as --xla=--xla_gpu_...=...")
    parser.add_argument("--logs", type=Path, help="a folder for what each search wrote to its error output")
    parser.add_argument("--out", type=Path, help="benchmarks/results/search_speed_{cpu,gpu}.json by default")
    chosen = parser.parse_args()
    chosen.data = chosen.data.resolve()
    names = [name.strip() for name in chosen.what.split(",")]
    if unknown := [name for name in names if name not in ASKED]:
        parser.error(f"--what {unknown[0]}: choose from {', '.join(ASKED)}")
    kind, machine = device()
    result = {
        "searches": {name: measured(name, chosen) for name in names},
        "asked": {"seconds": ASKED, "busy": BUSY},
        "machine": machine,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": " ".join(["python", "benchmarks/search_speed.py", *sys.argv[1:]]),
    }
    print(table(result))
    path = chosen.out or HERE / "results" / f"search_speed_{kind}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
