"""How good is the default on tables? Beside scikit-learn, LightGBM, RealMLP-TD and TabM-D, on thirty public sets.

    GRADWISE_DATA=... python benchmarks/tables.py                     the report half, three splits, all models
    ... tables.py --half development --models gradwise,realmlp        others; --sets names them one by one
    ... tables.py --ablation                                          the default with one thing changed at a time
    ... tables.py --gpu-speed                                         seconds of training, beside RealMLP-TD, on a GPU
    ... tables.py --search 120                                        the search and its peers, 120 s each
    ... tables.py --search 15,30,60,120,300,900                       the same at each of these times: the anytime curve
    ... tables.py --search 120 --join a.json b.json                   files of runs side by side, put into one

Needs the extra `bench`; AutoGluon has a Python of its own, which `GRADWISE_AUTOGLUON_PYTHON` names, and is left out
where it is not there. Every fit is written down at once, so a run may be killed and started again: what is in the
file is not measured anew, unless `--again` says so (as it must after the default has changed).

All models get the same rows and the same cores. Seconds are those of `fit`. Threads of OpenMP that wait for one
another burn ten times the processor time on a busy machine, so each result tells what others took of the cores
meanwhile; where that is more than a tenth, its times are left out of the summary (`--again disturbed` measures them
anew, on a machine that is idle). For gradwise they include compiling, as a
user has it, with a cache on disk; what it took is told beside. `GRADWISE_CACHE=$(mktemp -d)` begins without one.
"""

import argparse
import contextlib
import dataclasses
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
from table_models import MODELS, NO_LABELS, SEARCHES, TAKES_SECONDS, Machine
from table_sets import HALVES, LARGE, NAMES, Part, split
from table_summary import SHOW, budgets, disturbed

RESULTS = Path(__file__).parent / "results"
GPU_SETS = ("phoneme", "letter", "reg_california_housing", "reg_concrete", "texture")
ABLATION_LEAVES_OUT = (*LARGE, "letter")  # small and middle sets tell enough

Make = Callable[[str, int, Machine], Any]


Key = tuple[str, int, str, float | None]


def key_of(result: dict[str, Any]) -> Key:
    """What makes a result another one: its set, its seed, its model, and the seconds given, where they are given."""
    return result["set"], result["seed"], result["model"], result.get("budget")


class Record:
    """A file of results, written anew after each."""

    def __init__(self, path: Path, machine: str, command: str):
        self.path = path
        self.head = {"machine": machine, "date": "", "command": command}
        stored = json.loads(path.read_text()) if path.is_file() else {}
        self.results: list[dict[str, Any]] = stored.get("results", [])
        if self.results and stored["machine"] != machine:
            sys.exit(f"{path} holds results of another machine ({stored['machine']}): give another --out.")

    def place(self, key: Key) -> int | None:
        """Where the file has this result."""
        return next((n for n, one in enumerate(self.results) if key_of(one) == key), None)

    def has(self, key: Key, again: str) -> bool:
        """Whether the file has a result that need not be measured again."""
        place = self.place(key)
        return place is not None and again != "all" and not (again == "disturbed" and disturbed(self.results[place]))

    def add(self, *results: dict[str, Any], date: str = "") -> None:
        """Puts results in, in place of older ones of the same set, seed, model and budget."""
        for result in results:
            place = self.place(key_of(result))
            if place is None:
                self.results.append(result)
            else:
                self.results[place] = result
        self.head["date"] = date or datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
        lines = ",\n".join(json.dumps(one) for one in self.results)
        text = json.dumps(self.head, indent=1).removesuffix("\n}") + f',\n "results": [\n{lines}\n]}}\n'
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(text)
        part.replace(self.path)


def join(paths: list[Path], out: Path) -> Record:
    """One file of what processes side by side, on cores of their own, have written."""
    files = [json.loads(path.read_text()) for path in paths]
    if len(machines := {file["machine"] for file in files}) > 1:
        sys.exit(f"these are results of several machines ({'; '.join(sorted(machines))}): join those of one.")
    results = [result for file in files for result in file["results"]]
    if not results:
        sys.exit("nothing to join: the files hold no result")
    seconds = ",".join(f"{one:g}" for one in budgets(results))
    command = f"python benchmarks/tables.py --search {seconds}" if seconds else files[0]["command"]
    record = Record(out, files[0]["machine"], command)
    record.add(*results, date=max(file["date"] for file in files))
    return record


def describe(machine: Machine) -> str:
    every = os.cpu_count() or machine.threads
    used = f"{machine.threads} of {every}" if machine.threads < every else f"{every}"
    cores = f"{platform.processor() or platform.machine()}, {used} cores"
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
    """Processor seconds of this process and of those that it started, ended or not."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime + living_seconds()


def living_seconds() -> float:
    """Processor seconds of this process's living descendants and of what those have waited for, as Linux counts it."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            fields = path.read_text().rpartition(")")[2].split()
            process = int(path.parent.name)
            parents[process], ticks[process] = int(fields[1]), sum(map(int, fields[11:15]))
    total, found = 0, {os.getpid()}
    while found := {process for process, parent in parents.items() if parent in found}:
        total += sum(ticks[process] for process in found)
    return total / os.sysconf("SC_CLK_TCK")


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
        if not table_models.autogluon_python():
            del found["autogluon"]
    else:
        found = {name: make for name, make in MODELS.items() if kind != "labels" or name not in NO_LABELS}
    return {name: make for name, make in found.items() if not options.models or name in options.models}


def measure_one(
    options: argparse.Namespace, model: str, make: Make, part: Part, seed: int, machine: Machine
) -> dict[str, Any]:
    """What one model did on one split, or why it failed."""
    ours = options.ablation or model in ("gradwise", "search")
    timing = functools.partial(time_fits, count=2 if ours else 1)  # only we compile
    how = timing if options.gpu_speed else judge_ours if ours else judge
    try:
        return how(make, part, seed, machine)
    except ImportError:
        raise  # a peer is not installed: nothing to write down
    except Exception as error:
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"[:300]}


def measure(options: argparse.Namespace, machine: Machine, record: Record) -> None:
    """Everything that was asked for and is not in the record."""
    fresh: set[Key] = set()
    for name in options.sets:
        for seed in [options.seed] if options.seed is not None else range(options.seeds):
            part = split(name, seed)
            models = models_for(options, part.kind)
            for seconds in options.search or [machine.search_seconds]:
                given = dataclasses.replace(machine, search_seconds=seconds)
                for model, make in models.items():
                    result: dict[str, Any] = {"set": name, "seed": seed, "model": model, "kind": part.kind}
                    if options.search and model in TAKES_SECONDS:
                        result["budget"] = seconds
                    if (key := key_of(result)) not in fresh and not record.has(key, options.again):
                        measured = measure_one(options, model, make, part, seed, given)
                        record.add(result | measured)
                        fresh.add(key)
                        print(name, seed, model, result.get("budget", ""), json.dumps(measured), flush=True)
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

    def numbers(text: str) -> list[float]:
        return [float(word) for word in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--ablation", action="store_true", help="the default with one thing changed at a time")
    what.add_argument(
        "--search", type=numbers, help="seconds for a search, beside peers that get as many; or several, for the curve"
    )
    what.add_argument("--gpu-speed", action="store_true", help="seconds of training beside RealMLP-TD, on a GPU")
    parser.add_argument("--models", type=words, help=f"of {','.join(MODELS)}; or of the ablation's")
    parser.add_argument("--sets", type=words, help="names of sets, in place of a half")
    parser.add_argument("--half", choices=list(HALVES), default="report")
    parser.add_argument("--all", action="store_true", help=f"also {', '.join(LARGE)}")
    parser.add_argument("--seeds", type=int, help="how many splits")
    parser.add_argument("--seed", type=int, help="one split alone")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--again", nargs="?", const="all", default="", choices=("all", "disturbed"))
    parser.add_argument("--out", type=Path, help="the file of results")
    parser.add_argument("--join", type=Path, nargs="+", help="files of results to put into one; nothing is measured")
    options = parser.parse_args()
    kinds = {"tables_ablation": options.ablation, "tables_gpu": options.gpu_speed, "tables_search": options.search}
    options.name = next((name for name, asked in kinds.items() if asked), "tables")
    if len(options.search or []) > 1:
        options.name = "anytime"
    options.seeds = options.seeds or (1 if options.gpu_speed else 3)
    options.device = options.device or ("cuda" if options.gpu_speed else "cpu")
    options.sets = chosen_sets(options)
    return options


def check_known(given: list[str], known: Iterable[str]) -> None:
    if unknown := [one for one in given if one not in known]:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")


def check_autogluon(options: argparse.Namespace) -> None:
    """Says that AutoGluon is left out, or ends if it was named."""
    if options.search and not table_models.autogluon_python():
        missing = "AutoGluon is not there: set GRADWISE_AUTOGLUON_PYTHON to a Python that has it."
        if "autogluon" in (options.models or []):
            sys.exit(missing)
        if not options.models:
            print(missing, flush=True)


def main() -> None:
    options = parse()
    out = options.out or RESULTS / f"{options.name}.json"
    if options.join:
        print(SHOW[options.name](join(options.join, out).results))
        return
    code_version()  # before gradwise is imported
    warnings.simplefilter("ignore")
    machine = table_models.use(Machine(options.threads, options.device))
    check_known(options.sets, NAMES)
    known: Any = table_models.alternatives("classes") if options.ablation else {**MODELS, **SEARCHES}
    check_known(options.models or [], known)
    check_autogluon(options)
    flags = {
        "tables_ablation": " --ablation",
        "tables_gpu": " --gpu-speed",
        "tables": "",
    }
    searched = f" --search {','.join(f'{seconds:g}' for seconds in options.search or [])}"
    flag = flags.get(options.name, searched)
    record = Record(out, describe(machine), f"python benchmarks/tables.py{flag}")
    measure(options, machine, record)
    print(SHOW[options.name]([one for one in record.results if one["set"] in options.sets]))


if __name__ == "__main__":
    main()
