"""The space of `bergstra_torch.py` searched by Optuna: random sampling, a journal file, several processes.

    python benchmarks/bergstra_optuna.py --data mnist.npz --trials 64 --processes 2 --max-epochs 20

Every trial runs `bergstra_torch.train` on the CPU, one thread a process. A trial ends after `--max-epochs`, or earlier
by the rule of the space's authors when `--min-epochs` is lower: once past both the least number of epochs and twice the
best one. The last line is the whole as JSON: seconds, trials, trials an hour, the best validation error. Starting the
processes and importing the libraries is not counted: the clock starts when all of them are ready and warm.
"""

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bergstra_torch

NAME = "bergstra"
SAME = ("initial", "scale", "c", "hidden", "activation", "batch", "learning_rate", "tau_updates", "seed")


def suggest(trial: Any, examples: int, epochs: int) -> dict[str, Any]:
    """The same priors as `bergstra_torch.draw`, in Optuna's words."""
    batch = trial.suggest_categorical("batch", [20, 100])
    each = -(-examples // batch)
    decays = trial.suggest_categorical("decays", [False, True])
    return {
        "initial": trial.suggest_categorical("initial", ["uniform", "normal"]),
        "scale": trial.suggest_categorical("scale", ["fan_in", "glorot"]),
        "c": trial.suggest_float("c", 0.2, 2.0),
        "hidden": trial.suggest_int("hidden", 18, 1024, log=True),
        "activation": trial.suggest_categorical("activation", ["sigmoid", "tanh"]),
        "batch": batch,
        "learning_rate": trial.suggest_float("learning_rate", 1e-3, 10.0, log=True),
        "tau_updates": trial.suggest_float("tau_updates", 300.0, 30_000.0, log=True),
        "l2": trial.suggest_float("l2", 3.1e-7, 3.1e-5, log=True) if decays else 0.0,
        "seed": trial.suggest_int("seed", 0, 2),
        "updates": epochs * each,
        "validate_every": each,
    }


def storage_at(path: str) -> Any:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return JournalStorage(JournalFileBackend(path))


def rule(each: int, least_epochs: int) -> Callable[[int, float, int], bool]:
    """Goes on until past the least number of epochs and past twice the best one."""
    return lambda update, error, best_update: update <= max(least_epochs * each, 2 * best_update)


def work(path: str, chosen: dict[str, Any], seed: int, trials: int, ready: Any) -> None:
    """One process's share of the trials."""
    import optuna
    import torch

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    torch.set_num_threads(chosen["threads"])
    data = bergstra_torch.load(Path(chosen["data"]), "cpu")
    examples = len(data["X_train"])
    study = optuna.load_study(study_name=NAME, storage=storage_at(path), sampler=optuna.samplers.RandomSampler(seed))

    def objective(trial: Any) -> float:
        recipe = suggest(trial, examples, chosen["max_epochs"])
        told = bergstra_torch.train(recipe, data, rule(recipe["validate_every"], chosen["min_epochs"]))
        trial.set_user_attr("updates", told["updates"])
        return float(told["valid_error"])

    bergstra_torch.warm_up(data)
    ready.wait()
    study.optimize(objective, n_trials=trials)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="an .npz with X_train, y_train, X_valid, y_valid")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--max-epochs", type=int, default=20)
    parser.add_argument("--min-epochs", type=int, default=None, help="by default the same: no trial ends early")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--recipes", type=Path, help="JSON lines of `bergstra_torch.py --draw`: these are the trials")
    options = parser.parse_args()
    chosen = {**vars(options), "data": str(options.data), "min_epochs": options.min_epochs or options.max_epochs}
    chosen.pop("recipes")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "journal.log")
        study = optuna.create_study(study_name=NAME, storage=storage_at(path), direction="minimize")
        for line in options.recipes.read_text().splitlines()[: options.trials] if options.recipes else ():
            recipe = json.loads(line)
            decay = {"l2": recipe["l2"]} if recipe["l2"] else {}
            same = {name: recipe[name] for name in SAME}
            study.enqueue_trial({**same, "decays": bool(decay), **decay})
        ready = context.Barrier(options.processes + 1)
        shares = [len(range(number, options.trials, options.processes)) for number in range(options.processes)]
        workers = [
            context.Process(target=work, args=(path, chosen, options.seed * 1000 + number, share, ready))
            for number, share in enumerate(shares)
        ]
        for worker in workers:
            worker.start()
        ready.wait()
        start = time.perf_counter()
        for worker in workers:
            worker.join()
        seconds = time.perf_counter() - start
        if any(worker.exitcode for worker in workers):
            sys.exit("a process failed: see above")
        done = study.trials
    for trial in done:
        spent = (trial.datetime_complete - trial.datetime_start).total_seconds()
        line = {"number": trial.number, "seconds": spent, "valid_error": trial.value, **trial.user_attrs}
        print(json.dumps({**line, "recipe": trial.params}))
    whole = {"seconds": seconds, "trials": len(done), "trials_an_hour": 3600 * len(done) / seconds}
    print(json.dumps({**whole, "best_error": min(trial.value for trial in done)}))


if __name__ == "__main__":
    main()
