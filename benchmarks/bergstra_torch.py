"""The neural-network space of Bergstra and Bengio (2012) in plain PyTorch: the peer's side of a search benchmark.

    python benchmarks/bergstra_torch.py --draw 256 --seed 0 --examples 10000 --epochs 20 > recipes.jsonl
    python benchmarks/bergstra_torch.py --data mnist.npz --recipes recipes.jsonl --device cuda --share 0/4

The seven dimensions without preprocessing: one hidden layer, softmax cross-entropy, output weights and biases from 0.

| field of a recipe | prior |
|---|---|
| initial | "uniform" in (-1, 1) or "normal" of deviation 1, times the scale |
| scale | "fan_in": c / sqrt(n_in) with c uniform in (0.2, 2); or "glorot": sqrt(6 / (n_in + n_hidden)) |
| c | the c above, present in any case |
| hidden | log-uniform in 18 ... 1024 |
| activation | "sigmoid" or "tanh" |
| batch | 20 or 100 |
| learning_rate, tau_updates | log-uniform in 1e-3 ... 10 and 300 ... 30000; rate * tau / max(t, tau), t in updates |
| l2 | 0 half of the time, else log-uniform in 3.1e-7 ... 3.1e-5; times the squared weights, beside the mean loss |
| seed | 0, 1 or 2 |
| updates, validate_every | how many updates to run, and how many between validations |

A data file holds X_train, y_train, X_valid and y_valid. Each trial prints one JSON line: its number, its seconds, the
best and the last validation error. The loop is the strongest plain one: the data on the device, batches by a
permutation drawn there, no DataLoader, no `torch.compile`, and nothing read back between two validations.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def draw(random: np.random.Generator, examples: int, epochs: int) -> dict[str, Any]:
    """One recipe of the space, to be run for so many epochs and validated after each."""

    def log_uniform(low: float, high: float) -> float:
        return float(np.exp(random.uniform(np.log(low), np.log(high))))

    batch = int(random.choice([20, 100]))
    each = -(-examples // batch)
    return {
        "initial": str(random.choice(["uniform", "normal"])),
        "scale": str(random.choice(["fan_in", "glorot"])),
        "c": float(random.uniform(0.2, 2.0)),
        "hidden": round(log_uniform(18, 1024)),
        "activation": str(random.choice(["sigmoid", "tanh"])),
        "batch": batch,
        "learning_rate": log_uniform(1e-3, 10.0),
        "tau_updates": log_uniform(300, 30_000),
        "l2": 0.0 if random.random() < 0.5 else log_uniform(3.1e-7, 3.1e-5),
        "seed": int(random.integers(3)),
        "updates": epochs * each,
        "validate_every": each,
    }


def load(path: Path, device: str) -> dict[str, Any]:
    """The four arrays, on the device once and for all."""
    import torch

    with np.load(path) as file:
        arrays = {name: file[name] for name in ("X_train", "y_train", "X_valid", "y_valid")}
    inputs = {name: torch.from_numpy(arrays[name].astype(np.float32)).to(device) for name in ("X_train", "X_valid")}
    targets = {name: torch.from_numpy(arrays[name].astype(np.int64)).to(device) for name in ("y_train", "y_valid")}
    return {**inputs, **targets, "classes": int(arrays["y_train"].max()) + 1, "device": device}


def first_weights(recipe: dict[str, Any], inputs: int) -> Any:
    """The hidden weights (hidden, inputs) as the recipe draws them."""
    import torch

    generator = torch.Generator().manual_seed(recipe["seed"])
    shape = (recipe["hidden"], inputs)
    weight = torch.empty(shape)
    if recipe["initial"] == "uniform":
        weight.uniform_(-1.0, 1.0, generator=generator)
    else:
        weight.normal_(generator=generator)
    glorot = math.sqrt(6.0 / (inputs + recipe["hidden"]))
    return weight * (recipe["c"] / math.sqrt(inputs) if recipe["scale"] == "fan_in" else glorot)


def train(
    recipe: dict[str, Any], data: dict[str, Any], go_on: Callable[[int, float, int], bool] = lambda *_: True
) -> dict[str, Any]:
    """One trial. `go_on(update, error, best_update)` is asked after each validation; by default every update is run."""
    import torch

    device, x, y = data["device"], data["X_train"], data["y_train"]
    count, batch = len(x), recipe["batch"]
    hidden = torch.nn.Linear(x.shape[1], recipe["hidden"])
    output = torch.nn.Linear(recipe["hidden"], data["classes"])
    with torch.no_grad():
        hidden.weight.copy_(first_weights(recipe, x.shape[1]))
        for part in (hidden.bias, output.weight, output.bias):
            part.zero_()
    bend = torch.nn.Sigmoid() if recipe["activation"] == "sigmoid" else torch.nn.Tanh()
    model = torch.nn.Sequential(hidden, bend, output).to(device)
    weights = [model[0].weight, model[2].weight]
    others = [model[0].bias, model[2].bias]
    # The gradient of l2 * sum of squares is 2 * l2 * w, which is what the optimiser's own decay adds: no graph for it.
    groups = [{"params": weights, "weight_decay": 2.0 * recipe["l2"]}, {"params": others, "weight_decay": 0.0}]
    optimiser = torch.optim.SGD(groups, lr=recipe["learning_rate"])
    rate, tau = recipe["learning_rate"], recipe["tau_updates"]
    torch.manual_seed(recipe["seed"])
    best, best_update, error, update = 1.0, 0, 1.0, 0
    order = torch.randperm(count, device=device)
    place = 0
    while update < recipe["updates"]:
        for group in optimiser.param_groups:
            group["lr"] = rate * tau / max(update, tau)
        rows = order[place : place + batch]
        optimiser.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimiser.step()
        update, place = update + 1, place + batch
        if place >= count:
            order, place = torch.randperm(count, device=device), 0
        if update % recipe["validate_every"] == 0 or update == recipe["updates"]:
            with torch.no_grad():
                outputs = model(data["X_valid"])
                wrong = (outputs.argmax(1) != data["y_valid"]) | ~torch.isfinite(outputs).all(1)
                error = float(wrong.float().mean().item())  # the one wait for the device
            if error < best:
                best, best_update = error, update
            if not go_on(update, error, best_update):
                break
    return {"valid_error": best, "last_error": error, "updates": update, "best_update": best_update}


def warm_up(data: dict[str, Any]) -> None:
    """One short run: what the first call of a library costs is not the trials'."""
    few = draw(np.random.default_rng(0), len(data["X_train"]), 1)
    train({**few, "updates": 5, "validate_every": 5}, data)


def share_of(text: str) -> tuple[int, int]:
    number, _, total = text.partition("/")
    if not (number.isdigit() and total.isdigit() and int(number) < int(total)):
        raise argparse.ArgumentTypeError(f"a share is i/n with i below n, such as 0/4; got {text!r}")
    return int(number), int(total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draw", type=int, default=0, help="print so many recipes as JSON lines and end")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--examples", type=int, default=10_000, help="training examples, for the draw's updates")
    parser.add_argument("--epochs", type=int, default=20, help="for the draw's updates")
    parser.add_argument("--data", type=Path, help="an .npz with X_train, y_train, X_valid, y_valid")
    parser.add_argument("--recipes", type=Path, help="JSON lines, as --draw prints them")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--share", type=share_of, default=(0, 1), help="i/n: every n-th recipe from the i-th on")
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    if chosen.draw:
        random = np.random.default_rng(chosen.seed)
        for _ in range(chosen.draw):
            print(json.dumps(draw(random, chosen.examples, chosen.epochs)))
        return
    if not (chosen.data and chosen.recipes):
        parser.error("--data and --recipes are needed, or --draw")
    import torch

    torch.set_num_threads(chosen.threads)
    data = load(chosen.data, chosen.device)
    recipes = [json.loads(line) for line in chosen.recipes.read_text().splitlines() if line.strip()]
    first, step = chosen.share
    warm_up(data)
    begun = time.perf_counter()
    for number in range(first, len(recipes), step):
        start = time.perf_counter()
        told = train(recipes[number], data)
        print(json.dumps({"number": number, "seconds": time.perf_counter() - start, **told}), flush=True)
    print(f"{time.perf_counter() - begun:.2f} s for share {first}/{step}", file=sys.stderr)


if __name__ == "__main__":
    main()
