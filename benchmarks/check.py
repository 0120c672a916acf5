"""How long a check takes, and what it finds: planted bugs, sound problems, and what peers say of the same bugs.

    python benchmarks/check.py times            a full check of digits, and of a network of ten million parameters
    python benchmarks/check.py bugs             found, missed and false alarms, problem by problem
    python benchmarks/check.py                  both

What the peers report comes from `benchmarks/check_peers.py`, which needs their packages.
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
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
ASKED = {"digits, warm cache": 30.0, "ten million parameters, warm cache": 180.0}

BIG = """
import sys, time
import equinox as eqx, jax, jax.numpy as jnp, jax.random as jr, numpy as np, optax
import gradwise

net = eqx.nn.MLP(784, 10, 2048, 3, key=jr.key(0))
generator = np.random.default_rng(0)
centres = generator.normal(size=(10, 784))
y = generator.integers(0, 10, 2000)
x = (centres[y] + generator.normal(size=(2000, 784))).astype(np.float32)
y = y.astype(np.int32)

def loss(model, batch, key):
    outputs = jax.vmap(model)(batch[0])
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(outputs, batch[1]))

begun = time.monotonic()
found = gradwise.check_problem(loss, net, (x[:64], y[:64]), train=(x[:1600], y[:1600]), valid=(x[1600:], y[1600:]),
                       optimiser=optax.adam(1e-4))
print(sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(net, eqx.is_array))), time.monotonic() - begun)
for ran in found.ran: print(f"  {ran.name} {ran.outcome} {ran.seconds:.1f} {ran.why}")
print(found)
"""


def _machine() -> str:
    return f"{len(os.sched_getaffinity(0))} cores, {platform.machine()}"


def times(rounds: int) -> dict[str, float]:
    """Seconds of each check, cold and warm, each in a process of its own; the fastest warm one counts."""
    measured: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "GRADWISE_CACHE": str(Path(folder) / "cache"), "PYTHONPATH": str(HERE.parent)}
        command = [sys.executable, "-m", "gradwise", "check", "digits", "--out", str(Path(folder) / "run")]
        for name, words in (("digits", [*command, "--overwrite"]), ("ten million parameters", ["-c", BIG])):
            words = words if words[0] == sys.executable else [sys.executable, *words]
            for number in range(rounds + 1):
                begun = time.monotonic()
                done = subprocess.run(words, env=environment, capture_output=True, text=True)
                took = time.monotonic() - begun
                if done.returncode not in (0, 1) or "Traceback" in done.stderr:
                    raise SystemExit(done.stderr[-2000:])
                state = "cold cache" if number == 0 else "warm cache"
                measured[f"{name}, {state}"] = min(took, measured.get(f"{name}, {state}", took))
                print(f"{name}, {state}: {took:.1f} s", flush=True)
            print(done.stdout)
    return measured


def bugs() -> list[dict[str, Any]]:
    """Each planted bug and each sound problem: what was found, and which errors were false."""
    sys.path.insert(0, str(HERE.parent / "tests" / "checking"))
    from bugs import BUGS
    from sound import SOUND, checked

    rows = []
    for bug in BUGS:
        begun = time.monotonic()
        record = checked(bug.make)
        rows.append(
            {
                "name": bug.name,
                "kind": "bug",
                "told": sorted({one.code for one in record.findings if one.code in bug.codes and one.level != "note"}),
                "found": bug.found_in(record.findings) is not None,
                "false": sorted({error.code for error in bug.astray(record.findings)}),
                "seconds": time.monotonic() - begun,
            }
        )
        print(rows[-1], flush=True)
    for problem in SOUND:
        begun = time.monotonic()
        record = checked(problem.make)
        warned = sorted({finding.code for finding in record.findings if finding.level == "warning"})
        wrong = sorted({error.code for error in record.errors})
        took = time.monotonic() - begun
        rows.append({"name": problem.name, "kind": "sound", "warned": warned, "false": wrong, "seconds": took})
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", choices=("times", "bugs"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "check.json")
    chosen = parser.parse_args()
    result = json.loads(chosen.out.read_text()) if chosen.out.is_file() else {}
    result |= {"machine": _machine(), "date": f"{datetime.date.today()}", "command": "python benchmarks/check.py"}
    if chosen.part in (None, "times"):
        result["seconds"] = times(chosen.rounds)
    if chosen.part in (None, "bugs"):
        result["problems"] = bugs()
    chosen.out.write_text(json.dumps(result, indent=2) + "\n")
    for name, asked in ASKED.items():
        if name in result.get("seconds", {}):
            print(f"{name}: {result['seconds'][name]:.1f} s (asked: under {asked:.0f})")
    planted = [row for row in result.get("problems", []) if row["kind"] == "bug"]
    sound = [row for row in result.get("problems", []) if row["kind"] == "sound"]
    if planted:
        sys.path.insert(0, str(HERE))
        from tables import check_problems

        print(check_problems(result))
        alarms = sum(bool(row["false"]) for row in sound)
        print(f"found {sum(row['found'] for row in planted)} of {len(planted)} planted bugs; ", end="")
        print(f"{alarms} of {len(sound)} sound problems raised an error")


if __name__ == "__main__":
    main()
