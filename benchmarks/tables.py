"""How good is the default on tables? Beside scikit-learn, LightGBM, RealMLP-TD and TabM-D, on thirty public sets.

    GRADWISE_DATA=... python benchmarks/tables.py                     the report half, three splits, all models
    ... tables.py --half development --models gradwise,realmlp        others; --sets names them one by one
    ... tables.py --ablation                                          the default with one thing changed at a time
    ... tables.py --gpu-speed                                         seconds of training, beside RealMLP-TD, on a GPU
    ... tables.py --search 120                                        the search and its peers, 120 s each

Needs the extra `bench`. Every fit is written down at once, so a run may be killed and started again: what is in the
file is not measured anew, unless `--again` says so (as it must after the default has changed).

All models get the same rows and the same cores. Seconds are those of `fit`. Threads of OpenMP that wait for one
another burn ten times the processor time on a busy machine, so each result tells what others took of the cores
meanwhile; where that is more than a tenth, its times are left out of the summary (`--again disturbed` measures them
anew, on a machine that is idle). For gradwise they include compiling, as a
user has it, with a cache on disk; what it took is told beside. `GRADWISE_CACHE=$(mktemp -d)` begins without one.
"""

import argparse
import contextlib
import datetime
import functools
import hashlib
import json
import os
import platform
import resource
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import table_models
from table_models import MODELS, NO_LABELS, SEARCHES, Machine
from table_sets import HALVES, LARGE, NAMES, Part, split
from table_summary import SHOW, disturbed

RESULTS = Path(__file__).parent / "results"
GPU_SETS = ("phoneme", "letter", "reg_california_housing", "reg_concrete", "texture")
ABLATION_LEAVES_OUT = (*LARGE, "letter")  # small and middle sets tell enough

Make = Callable[[str, int, Machine], Any]


class Record:
    """A file of results, written anew after each."""

    def __init__(self, path: Path, machine: Machine, command: str):
        self.path = path
        self.head = {"machine": describe(machine), "date": "", "command": command}
        stored = json.loads(path.read_text()) if path.is_file() else {}
        self.results: list[dict[str, Any]] = stored.get("results", [])
        if self.results and stored["machine"] != self.head["machine"]:
            sys.exit(f"{path} holds results of another machine ({stored['machine']}): give another --out.")

    def place(self, name: str, seed: int, model: str) -> int | None:
        """Where the file has this result."""
        key = (name, seed, model)
        places = (n for n, one in enumerate(self.results) if (one["set"], one["seed"], one["model"]) == key)
        return next(places, None)

    def has(self, name: str, seed: int, model: str, again: str) -> bool:
        """Whether the file has a result that need not be measured again."""
        place = self.place(name, seed, model)
        return place is not None and again != "all" and not (again == "disturbed" and disturbed(self.results[place]))

    def add(self, result: dict[str, Any]) -> None:
        """Puts a result in, in place of an older one of the same set, seed and model."""
        place = self.place(result["set"], result["seed"], result["model"])
        if place is None:
            self.results.append(result)
        else:
            self.results[place] = result
        self.head["date"] = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
        lines = ",\n".join(json.dumps(one) for one in self.results)
        text = json.dumps(self.head, indent=1).removesuffix("\n}") + f',\n "results": [\n{lines}\n]}}\n'
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(text)
        part.replace(self.path)


def describe(machine: Machine) -> str:
    cores = f"{platform.processor() or platform.machine()}, {machine.threads} cores"
    if machine.device == "cpu":
        return f"{cores}, cpu"
    import jax

    return f"{cores}, {jax.devices()[0].device_kind}"


@contextlib.contextmanager
def compiling() -> Iterator[list[float]]:
    """Collects the seconds that JAX spends on compiling, or on fetching what it compiled before."""
    import jax

    spent: list[float] = []

    def listen(event: str, seconds: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            spent.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield spent
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def busy_seconds() -> float:
    """What all processes together have taken of this process's cores, as Linux counts it."""
    cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    rows = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    ticks = sum(sum(map(int, row[1:9])) - int(row[4]) - int(row[5]) for row in rows if row[0] in cores)  # less idle
    return ticks / os.sysconf("SC_CLK_TCK")


@functools.cache
def code_version() -> str:
    """A name for gradwise's code as this process began with it: results of different code should not be averaged."""
    files = sorted((Path(__file__).parents[1] / "gradwise").rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:8]


def own_seconds() -> float:
    """Processor seconds of this process and of those that it started and that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def fit(make: Make, part: Part, seed: int, machine: Machine) -> tuple[Any, dict[str, float]]:
    """A fitted model, and what it took: seconds, those of all threads, and the share of the cores others had."""
    model = make(part.kind, seed, machine)
    busy, wall, processor = busy_seconds(), time.perf_counter(), own_seconds()
    model.fit(part.train, part.train_targets)
    seconds, own = time.perf_counter() - wall, own_seconds() - processor
    others = busy_seconds() - busy - own - 0.05  # it counts in hundredths of a second
    return model, {
        "seconds": seconds,
        "cpu_seconds": own,
        "others": max(0.0, others / seconds / len(os.sched_getaffinity(0))),
    }


def judge(make: Make, part: Part, seed: int, machine: Machine) -> dict[str, Any]:
    """One fit, and its error on the rows kept for judging."""
    model, took = fit(make, part, seed, machine)
    return {"judged": part.test_targets.size, "error": part.error(model.predict(part.test)), **took}


def judge_ours(make: Make, part: Part, seed: int, machine: Machine) -> dict[str, Any]:
    """The same for gradwise, with the seconds of compiling that are in it."""
    with compiling() as spent:
        return {**judge(make, part, seed, machine), "compile_seconds": sum(spent), "code": code_version()}


def time_fits(make: Make, part: Part, seed: int, machine: Machine, count: int) -> dict[str, Any]:
    """The seconds of so many fits, one after the other."""
    took = [fit(make, part, seed, machine)[1] for _ in range(count)]
    return {"fits": [one["seconds"] for one in took], "others": max(one["others"] for one in took)}


def models_for(options: argparse.Namespace, kind: str) -> dict[str, Make]:
    """The models to measure on a table of this kind, by name."""
    if options.gpu_speed:
        found: dict[str, Make] = {"gradwise": table_models.as_long_as_realmlp, "realmlp": MODELS["realmlp"]}
    elif options.ablation:
        found = table_models.alternatives(kind)
    elif options.search:
        found = {name: make for name, make in SEARCHES.items() if kind != "labels" or name not in NO_LABELS}
    else:
        found = {name: make for name, make in MODELS.items() if kind != "labels" or name not in NO_LABELS}
    return {name: make for name, make in found.items() if not options.models or name in options.models}


def measure(options: argparse.Namespace, machine: Machine, record: Record) -> None:
    """Everything that was asked for and is not in the record."""
    fresh: set[tuple[str, int, str]] = set()
    for name in options.sets:
        for seed in range(options.seeds):
            part = split(name, seed)
            for model, make in models_for(options, part.kind).items():
                if record.has(name, seed, model, options.again):
                    continue
                ours = options.ablation or model in ("gradwise", "search")
                timing = functools.partial(time_fits, count=2 if ours else 1)  # only we compile
                how = timing if options.gpu_speed else judge_ours if ours else judge
                result: dict[str, Any] = {"set": name, "seed": seed, "model": model, "kind": part.kind}
                try:
                    result |= how(make, part, seed, machine)
                except ImportError:
                    raise  # a peer is not installed: nothing to write down
                except Exception as error:
                    traceback.print_exc()
                    result["failed"] = f"{type(error).__name__}: {error}"[:300]
                record.add(result)
                fresh.add((name, seed, model))
                told = {key: value for key, value in result.items() if key not in ("set", "seed", "model", "kind")}
                print(name, seed, model, json.dumps(told), flush=True)
    print(f"{len(fresh)} fits measured, {len(record.results)} in {record.path}\n", flush=True)


def chosen_sets(options: argparse.Namespace) -> list[str]:
    if options.sets:
        return list(options.sets)
    if options.gpu_speed:
        return list(GPU_SETS)
    if options.ablation:
        return [name for name in HALVES["development"] if name not in ABLATION_LEAVES_OUT or options.all]
    return [name for name in HALVES[options.half] if name not in LARGE or options.all]


def parse() -> argparse.Namespace:
    def words(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--ablation", action="store_true", help="the default with one thing changed at a time")
    what.add_argument("--search", type=float, help="seconds for a search, beside peers that get as many")
    what.add_argument("--gpu-speed", action="store_true", help="seconds of training beside RealMLP-TD, on a GPU")
    parser.add_argument("--models", type=words, help=f"of {','.join(MODELS)}; or of the ablation's")
    parser.add_argument("--sets", type=words, help="names of sets, in place of a half")
    parser.add_argument("--half", choices=list(HALVES), default="report")
    parser.add_argument("--all", action="store_true", help=f"also {', '.join(LARGE)}")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--again", nargs="?", const="all", default="", choices=("all", "disturbed"))
    parser.add_argument("--out", type=Path, help="the file of results")
    options = parser.parse_args()
    kinds = {"tables_ablation": options.ablation, "tables_gpu": options.gpu_speed, "tables_search": options.search}
    options.name = next((name for name, asked in kinds.items() if asked), "tables")
    options.seeds = options.seeds or (1 if options.gpu_speed else 3)
    options.device = options.device or ("cuda" if options.gpu_speed else "cpu")
    options.sets = chosen_sets(options)
    return options


def check_known(given: list[str], known: Iterable[str]) -> None:
    if unknown := [one for one in given if one not in known]:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")


def main() -> None:
    options = parse()
    code_version()  # before gradwise is imported
    warnings.simplefilter("ignore")
    machine = table_models.use(Machine(options.threads, options.device, options.search or Machine.search_seconds))
    check_known(options.sets, NAMES)
    known: Any = table_models.alternatives("classes") if options.ablation else {**MODELS, **SEARCHES}
    check_known(options.models or [], known)
    flags = {
        "tables_ablation": " --ablation",
        "tables_gpu": " --gpu-speed",
        "tables_search": f" --search {options.search}",
    }
    flag = flags.get(options.name, "")
    record = Record(options.out or RESULTS / f"{options.name}.json", machine, f"python benchmarks/tables.py{flag}")
    measure(options, machine, record)
    print(SHOW[options.name]([one for one in record.results if one["set"] in options.sets]))


if __name__ == "__main__":
    main()
