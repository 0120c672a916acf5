"""A random search in Bergstra and Bengio's space: gradwise beside Optuna and PyTorch, the same recipes and updates.

    python benchmarks/search_vs_optuna.py --data mnist.npz               2 cores: against Optuna + PyTorch
    python benchmarks/search_vs_optuna.py --data mnist.npz --on gpu      one GPU: against PyTorch processes

The data file holds all of MNIST as X (n, 784, bytes) and y: 10 000 digits to learn from, 2 000 to choose by, the others
to test on. On the CPU every trial runs the same number of epochs, and both sides run the very same recipes; starting
processes and importing libraries is not counted, compiling is. On the GPU gradwise runs the paper's own stopping rule;
PyTorch's time per update is measured on a sample of the same recipes, in 1, 4 and 8 processes side by side, and
multiplied by the updates that gradwise ran: a whole search would take it hours. From the GPU's trials comes the
efficiency curve: disjoint experiments of 1, 2, 4, ... trials, each scored on the test digits by the weighted estimate.
"""

import argparse
import datetime
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
GRID_ERROR = 0.0469  # of the paper's grid search on these digits


def our_recipe(line: dict[str, Any], space: Any) -> Any:
    """A drawn recipe as one of ours."""
    import bergstra

    from gradwise.models.activations import Sigmoid, Tanh

    return space.recipe_of(
        {
            "model.initial.distribution": line["initial"],
            "model.initial.rule": "inputs" if line["scale"] == "fan_in" else "both",
            "model.initial.c": line["c"],
            "model.widths.each": line["hidden"],
            "model.activation": Sigmoid() if line["activation"] == "sigmoid" else Tanh(),
            "batches.size": line["batch"],
            "optimiser.learning_rate": line["learning_rate"],
            "optimiser.schedule.tau_updates": line["tau_updates"],
            "criterion.penalties.0.coefficient": line["l2"] * bergstra.TRAIN,
        }
    )


def drawn(count: int, epochs: int, seed: int) -> list[dict[str, Any]]:
    import bergstra
    import bergstra_torch

    random = np.random.default_rng(seed)
    return [bergstra_torch.draw(random, bergstra.TRAIN, epochs) for _ in range(count)]


def write_peer_data(dataset: Any, folder: Path) -> Path:
    import bergstra

    n, v = bergstra.TRAIN, bergstra.VALID
    path = folder / "digits.npz"
    np.savez(
        path,
        X_train=dataset.inputs[:n],
        y_train=dataset.targets[:n],
        X_valid=dataset.inputs[n : n + v],
        y_valid=dataset.targets[n : n + v],
    )
    return path


def run_ours(lines: list[dict[str, Any]], dataset: Any, space: Any, *, workers: int) -> tuple[float, list[Any]]:
    """Seconds and results of these recipes, in worker processes (CPU) or here (an accelerator)."""
    from gradwise.runtime import keys
    from gradwise.searching.running.evaluation_data import EvaluationData
    from gradwise.searching.running.executor_choice import varying
    from gradwise.searching.running.executors import LocalExecutor, WorkerProcesses
    from gradwise.searching.running.jobs import Job
    from gradwise.searching.running.population_size import BySize
    from gradwise.searching.running.run_jobs import run_jobs

    key = keys.from_seed(0)
    data = EvaluationData.of(dataset, space.recipe.split, metric="error_rate", key=key)
    jobs = [Job(number, our_recipe(line, space), number) for number, line in enumerate(lines)]
    options: dict[str, Any] = {"slots": BySize(), "varying": varying(space)}
    maker: Any = (
        (lambda: WorkerProcesses(data, count=workers, **options))
        if workers
        else (lambda: LocalExecutor(data, **options))
    )
    with maker() as executor:
        if workers:  # as the peer: the clock starts when every process is up
            warm = [Job(10**6 + n, jobs[0].recipe, 0, examples=1) for n in range(2 * workers)]
            run_jobs(executor, warm)
        shown = [time.monotonic()]

        def each(done: Any) -> None:
            if time.monotonic() - shown[0] > 15:
                shown[0] = time.monotonic()
                print(f"  {time.perf_counter() - start:.0f} s: trial {done.number} ended", flush=True)

        start = time.perf_counter()
        found = run_jobs(executor, jobs, each=each)
        seconds = time.perf_counter() - start
    return seconds, [found[job.number] for job in jobs]


def run_cpu(options: argparse.Namespace, dataset: Any) -> dict[str, Any]:
    import bergstra

    lines = drawn(options.trials, options.epochs, options.seed)
    space = bergstra.space(shortest=options.epochs, longest=options.epochs)
    rounds = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = write_peer_data(dataset, folder)
        recipes = folder / "recipes.jsonl"
        recipes.write_text("\n".join(json.dumps(line) for line in lines))
        command = [sys.executable, str(HERE / "bergstra_optuna.py"), "--data", str(data), "--recipes", str(recipes)]
        command += ["--trials", str(options.trials), "--processes", "2", "--max-epochs", str(options.epochs)]
        for number in range(options.rounds):
            seconds, done = run_ours(lines, dataset, space, workers=2)
            told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
            peer = json.loads(told)
            best = min(one.score for one in done if math.isfinite(one.score))
            rounds.append({"gradwise": seconds, "optuna": peer["seconds"], "ratio": peer["seconds"] / seconds})
            print(
                f"round {number}: gradwise {seconds:.1f} s, best {best:.2%}; Optuna + PyTorch {peer['seconds']:.1f} s,"
            )
            print(f"  best {peer['best_error']:.2%}; ratio {rounds[-1]['ratio']:.2f}", flush=True)
    fastest = {name: min(one[name] for one in rounds) for name in ("gradwise", "optuna")}
    return {
        "trials": options.trials,
        "epochs": options.epochs,
        "rounds": rounds,
        "trials_an_hour": {name: 3600 * options.trials / seconds for name, seconds in fastest.items()},
        "ratio": fastest["optuna"] / fastest["gradwise"],
    }


def torch_seconds(lines: list[dict[str, Any]], data: Path, folder: Path, processes: int) -> dict[int, float]:
    """Seconds an update, by batch size, of PyTorch processes side by side on these short recipes."""
    recipes = folder / f"sample-{processes}.jsonl"
    recipes.write_text("\n".join(json.dumps(line) for line in lines * processes))
    command = [sys.executable, str(HERE / "bergstra_torch.py"), "--data", str(data), "--recipes", str(recipes)]
    # Shares are every n-th recipe: with n copies one after another each process gets recipes of both batch sizes.
    running = [
        subprocess.Popen(
            [*command, "--device", "cuda", "--share", f"{n}/{processes}"], stdout=subprocess.PIPE, text=True
        )
        for n in range(processes)
    ]
    told = [json.loads(line) for one in running for line in one.communicate()[0].splitlines() if line.startswith("{")]
    by_batch: dict[int, list[float]] = {20: [], 100: []}
    for trial in told:
        line = (lines * processes)[trial["number"]]
        by_batch[line["batch"]].append(trial["seconds"] / trial["updates"])
    return {batch: float(np.mean(values)) for batch, values in by_batch.items()}


def test_errors(done: list[Any], lines: list[dict[str, Any]], test: Any) -> np.ndarray:
    """Test error of every trial's best network; weights padded to few sizes, so that few programs are compiled."""
    import jax
    import jax.numpy as jnp

    from gradwise.models.padded_mlp import bucket

    inputs, targets = jnp.asarray(test.inputs), jnp.asarray(test.targets)

    @jax.jit
    def error(w: Any, b: Any, v: Any, c: Any, sigmoid: Any) -> Any:
        a = inputs @ w.T + b
        h = jnp.where(sigmoid, jax.nn.sigmoid(a), jnp.tanh(a))
        return jnp.mean(jnp.argmax(h @ v.T + c, axis=1) != targets)

    found = np.full(len(done), 0.9)
    for place, (one, line) in enumerate(zip(done, lines, strict=True)):
        if one.network is None or not math.isfinite(one.score):
            continue
        layer, output = one.network.layers[0], one.network.output
        extra = bucket(line["hidden"], coarse=True) - line["hidden"]
        w, b = np.pad(layer.weight, ((0, extra), (0, 0))), np.pad(layer.bias, (0, extra))
        v = np.pad(output.weight, ((0, 0), (0, extra)))
        found[place] = float(error(w, b, v, np.asarray(output.bias), line["activation"] == "sigmoid"))
    return found


def efficiency(valid: np.ndarray, test: np.ndarray, n_valid: int, n_test: int) -> list[dict[str, Any]]:
    """The efficiency curve: experiments of s trials each, scored by the weighted estimate."""
    from gradwise.evaluation.trials.selection_bias import weighted_estimate

    def variance(rate: np.ndarray, count: int) -> np.ndarray:
        return np.maximum(rate * (1 - rate), 1e-9) / (count - 1)

    rows = []
    size = 1
    while size <= len(valid):
        scores = []
        for start in range(0, len(valid) - size + 1, size):
            own = slice(start, start + size)
            estimate = weighted_estimate(
                valid[own], variance(valid[own], n_valid), test[own], variance(test[own], n_test), draws=4000
            )
            scores.append(estimate.mean)
        quartiles = [float(q) for q in np.quantile(scores, [0, 0.25, 0.5, 0.75, 1])]
        deviation = float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0
        rows.append(
            {
                "trials": size,
                "experiments": len(scores),
                "quartiles": quartiles,
                "mean": float(np.mean(scores)),
                "deviation": deviation,
            }
        )
        size *= 2
    return rows


def run_gpu(options: argparse.Namespace, dataset: Any) -> dict[str, Any]:
    import bergstra

    from gradwise.specs.dataset import Dataset

    lines = drawn(options.trials, 1, options.seed)
    space = bergstra.space()
    used = bergstra.TRAIN + bergstra.VALID
    searched: Dataset = dataset.take(np.arange(used))
    seconds, done = run_ours(lines, searched, space, workers=0)
    updates = [one.age_examples / line["batch"] for one, line in zip(done, lines, strict=True)]
    ended = {name: sum(one.outcome == name for one in done) for name in {one.outcome for one in done}}
    print(f"gradwise: {options.trials} trials in {seconds:.1f} s; {ended}; mean epochs", end=" ")
    print(f"{np.mean([one.age_examples / bergstra.TRAIN for one in done]):.0f}", flush=True)
    test = dataset.take(np.arange(used, len(dataset)))
    tests = test_errors(done, lines, test)
    valid = np.array([one.score if math.isfinite(one.score) else 0.9 for one in done])
    half = 256 if options.trials >= 256 else options.trials
    curve = efficiency(valid[:half], tests[:half], bergstra.VALID, len(test))
    for row in curve:
        print(f"  best of {row['trials']:3d}: {row['mean']:.2%} +- {row['deviation']:.2%}")
    peers = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = write_peer_data(searched, folder)
        few = [{**line, "updates": options.sample, "validate_every": 10_000 // line["batch"]} for line in lines]
        by_size = [[line for line in few if line["batch"] == size][:4] for size in (20, 100)]
        sample = [*by_size[0], *by_size[1]]
        for processes in (1, 4, 8):
            each = torch_seconds(sample, data, folder, processes)
            whole = sum(n * each[line["batch"]] for n, line in zip(updates, lines, strict=True)) / processes
            peers[str(processes)] = {"seconds_an_update": each, "seconds": whole, "ratio": whole / seconds}
            print(
                f"PyTorch, {processes} process(es): {each}; these trials {whole / 3600:.2f} h; {whole / seconds:.0f}x"
            )
    return {
        "trials": options.trials,
        "seconds": seconds,
        "trials_an_hour": 3600 * options.trials / seconds,
        "outcomes": ended,
        "mean_epochs": float(np.mean([one.age_examples / bergstra.TRAIN for one in done])),
        "peers": peers,
        "ratio": peers["1"]["ratio"],
        "ratio_to_best": min(peer["ratio"] for peer in peers.values()),
        "efficiency": curve,
        "grid_error": GRID_ERROR,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--on", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--trials", type=int, default=0, help="24 on the CPU, 256 on the GPU")
    parser.add_argument("--epochs", type=int, default=40, help="of each trial on the CPU")
    parser.add_argument("--rounds", type=int, default=1, help="on the CPU; the fastest of each side counts")
    parser.add_argument("--sample", type=int, default=1500, help="updates of each sampled PyTorch trial on the GPU")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    options.trials = options.trials or (24 if options.on == "cpu" else 256)
    if options.on == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    sys.path.insert(0, str(HERE))
    import bergstra

    dataset = bergstra.digits(options.data, test=0 if options.on == "cpu" else 50_000)
    found = run_cpu(options, dataset) if options.on == "cpu" else run_gpu(options, dataset)
    import jax

    device = jax.devices()[0]
    machine = f"{len(os.sched_getaffinity(0))} cores of {platform.machine()}"
    record = {
        "command": f"python benchmarks/search_vs_optuna.py --on {options.on}",
        "machine": machine if options.on == "cpu" else str(device.device_kind),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        **found,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"search_vs_optuna{'' if options.on == 'cpu' else '_gpu'}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps({name: record[name] for name in ("trials_an_hour", "ratio")}))


if __name__ == "__main__":
    main()
