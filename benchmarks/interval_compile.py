"""How long does the interval of a population take to compile, and to run? MNIST's default recipe, by compiler setting.

    python benchmarks/interval_compile.py
    python benchmarks/interval_compile.py --settings "now;unroll1" --widths 1024,1024,1024 --slots 16

Each setting runs in a process of its own, with no cache: the interval of 48 networks of three layers of 256 units on
40 000 images is compiled, run once, and then timed. The time of an update includes its share of the validation. With
`--unroll` left out the library's own choice counts. Asked on an H200: under 6 s.
"""

import argparse
import datetime
import json
import os
import platform
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ASKED = 6.0
# Updates in one turn of the loop (0: the library's own choice), and flags for XLA.
SETTINGS: dict[str, tuple[int, str]] = {
    "now": (0, ""),
    "unroll1": (1, ""),
    "unroll2": (2, ""),
    "unroll4": (4, ""),
    "unroll1, autotune 0": (1, "--xla_gpu_autotune_level=0"),
    "unroll1, autotune 1": (1, "--xla_gpu_autotune_level=1"),
    "unroll1, no triton": (1, "--xla_gpu_enable_triton_gemm=false"),
    "unroll4, no triton": (4, "--xla_gpu_enable_triton_gemm=false"),
    "unroll1, parallel": (1, "--xla_gpu_enable_llvm_module_compilation_parallelism=true"),
    "now, loops as graphs": (0, "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL"),
    "unroll1, no command buffers": (1, "--xla_gpu_enable_command_buffer="),
    "unroll1, no triton, opt 1": (1, "--xla_gpu_enable_triton_gemm=false --xla_backend_optimization_level=1"),
}


def make_population(widths: tuple[int, ...], slots: int, rows: int, batch: int) -> Any:
    """A population as a search of images makes it."""
    import dataclasses

    import jax.numpy as jnp
    import numpy as np

    from gradwise import defaults
    from gradwise.curvature.objective import Examples
    from gradwise.models.padded_mlp import PaddedMlp
    from gradwise.runtime import keys
    from gradwise.searching.running.cohort import written_out
    from gradwise.training.population import Population, enter

    random = np.random.default_rng(0)

    def examples(count: int) -> Examples:
        inputs = random.random((count, 784), dtype=np.float32)
        return Examples(jnp.asarray(inputs), jnp.asarray(random.integers(0, 10, count).astype(np.int32)))

    train, valid = examples(rows), examples(rows // 2)
    recipe = defaults.classification(stopping=defaults.search_stopping(60_000))
    padded = PaddedMlp(dataclasses.replace(recipe.model, widths=widths), np.asarray(widths, np.int32))
    recipe = dataclasses.replace(recipe, model=padded, batches=dataclasses.replace(recipe.batches, size=batch))
    recipe = written_out(recipe, ("model.mlp.dropout", "criterion.penalties.0.coefficient"))
    member, state = enter(recipe, train, valid, outputs=10, key=keys.from_seed(0))
    population = Population(member, state, train, valid, slots=slots)
    for slot in range(slots):
        population.fill(slot, member, state)
    return population


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """One setting, in this process."""
    import jax

    from gradwise.training import interval

    if chosen.unroll:
        interval._UNROLL_POPULATION = chosen.unroll
    widths = tuple(int(width) for width in chosen.widths.split(","))
    population = make_population(widths, chosen.slots, chosen.rows, chosen.batch)
    jax.block_until_ready(population.states.update)
    used, began = resource.getrusage(resource.RUSAGE_SELF).ru_utime, time.perf_counter()
    population.compiled = population.compile()
    seconds = time.perf_counter() - began
    processor = resource.getrusage(resource.RUSAGE_SELF).ru_utime - used
    program = getattr(population.compiled, "compiled", population.compiled)
    instructions = len(re.findall(r"^\s+(?:ROOT )?%?[\w.-]+ = ", program.as_text(), re.MULTILINE))
    times = []
    for _ in range(1 + chosen.rounds):
        began = time.perf_counter()
        jax.block_until_ready(population.turns(1).updates)
        times.append(time.perf_counter() - began)
    return {
        "seconds": seconds,
        "processor_seconds": processor,
        "instructions": instructions,
        "milliseconds_an_update": 1e3 * min(times[1:]) / population.updates,
        "updates": population.updates,
        "device": jax.devices()[0].device_kind,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", default=";".join(SETTINGS), help="some of the names in SETTINGS, with ; between")
    parser.add_argument("--widths", default="256,256,256")
    parser.add_argument("--slots", type=int, default=48)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--unroll", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    chosen = parser.parse_args()
    if chosen.unroll >= 0:  # the process of one setting
        print(json.dumps(measure(chosen)))
        return
    found: dict[str, Any] = {}
    print("| setting | seconds compiling | processor seconds | instructions | ms an update |\n|---|---|---|---|---|")
    for name in chosen.settings.split(";"):
        unroll, flags = SETTINGS[name]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
            "GRADWISE_CACHE": "",
            "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip(),
        }
        command = [sys.executable, __file__, "--unroll", str(unroll), "--widths", chosen.widths]
        for option in ("slots", "rows", "batch", "rounds"):
            command += [f"--{option}", str(getattr(chosen, option))]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:  # flags come and go
            print(f"| {name} | failed: {done.stderr.strip().splitlines()[-1][:100]} |", flush=True)
            continue
        one = found[name] = json.loads(done.stdout.splitlines()[-1])
        numbers = f"{one['seconds']:.1f} | {one['processor_seconds']:.1f} | {one['instructions']}"
        print(f"| {name} | {numbers} | {one['milliseconds_an_update']:.3f} |", flush=True)
    if chosen.out:
        result = {
            "settings": found,
            "widths": chosen.widths,
            "slots": chosen.slots,
            "asked": ASKED,
            "machine": f"{len(os.sched_getaffinity(0))} cores of {platform.machine()}",
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
            "command": " ".join(["python", "benchmarks/interval_compile.py", *sys.argv[1:]]),
        }
        chosen.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
