"""Networks that share parameters, beside PyTorch and Keras on the same work: how long does an epoch take?

    python benchmarks/kinds.py                        on the CPU: every kind, against every peer that it has
    python benchmarks/kinds.py --on gpu --slots 64    on a GPU, and a population of 64 networks at once

| kind     | network                                                       | data                                  |
|----------|---------------------------------------------------------------|---------------------------------------|
| filters  | LeNet: 6 and 16 filters of 5 x 5, 120 and 84 dense units      | MNIST, 10,000 pictures, batches of 64 |
| gates    | one layer of 64 gated units, its last state                   | fsdd, 3,000 recordings, batches of 32 |
| logistic | no hidden layer, counts of words                              | 20 newsgroups, CSR, batches of 64     |
| hidden   | one hidden layer of 64 rectifiers, counts of words            | 20 newsgroups, CSR, batches of 64     |
| words    | Bengio 2003: 5 words of 100 numbers, 200 units, softmax       | Penn Treebank, 50,000 of its words    |

All get the same data, batch size and optimiser; an epoch includes shuffling and one validation on a tenth of the data.
Peers take turns within a round, and the fastest round of each counts. PyTorch packs sequences of different lengths and
sums rows of an `EmbeddingBag` with sparse gradients; compiled PyTorch and Keras pad sequences to the longest. Keras
runs on JAX by `Model.fit`, and reads no CSR.
"""

import argparse
import datetime
import json
import math
import os
import platform
import shlex
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import numpy as np

import gradwise as gw
from gradwise import language
from gradwise.data.reading.read import ReadRequest, read
from gradwise.specs.recipe import Recipe
from gradwise.training.history import Monitor
from gradwise.training.interval import AT_ONCE, intervals
from gradwise.training.loop import CALL_SECONDS
from gradwise.training.population import Population, enter
from gradwise.training.prepare import place_examples, sparse_slots, target_units
from gradwise.training.state import init

HERE = Path(__file__).parent
KINDS = {
    "filters": "LeNet, MNIST",
    "gates": "GRU, spoken digits",
    "logistic": "logistic, 21,724 counts of words",
    "hidden": "one hidden layer, 21,724 counts of words",
    "words": "language model, 10,000 words",
}
BATCH = {"filters": 64, "gates": 32, "logistic": 64, "hidden": 64, "words": 256}
ASKED = {"cpu": 1.5, "gpu": 3.0, "population": 20.0}
VALID = 0.1
WORDS, CONTEXT, STEPS = 50_000, 5, 32  # of the text, before the predicted one, of a window that gradwise reads at once


def text() -> tuple[np.ndarray, language.Vocabulary]:
    """The first words of the training text as numbers, all its words in the vocabulary."""
    tokens = language.read_tokens(Path(os.environ["GRADWISE_DATA"]) / "lm_ptb" / "ptb.train.txt.gz")
    vocabulary = language.Vocabulary.of(tokens)
    return vocabulary.encode(tokens[:WORDS]), vocabulary


def parts_of_text() -> tuple[gw.Dataset, Any]:
    """Windows of the text, the last tenth of which validates, and the split that says so."""
    numbers, vocabulary = text()
    cut = int(WORDS * (1 - VALID)) // STEPS * STEPS
    parts = [
        language.windows(some, context=CONTEXT, steps=STEPS, begin=vocabulary.end)
        for some in (numbers[:cut], numbers[cut:])
    ]
    return gw.join_parts(*parts)


def data_of(kind: str) -> gw.Dataset:
    """Pictures, recordings, counts of words, or a text."""
    folder = Path(os.environ["GRADWISE_DATA"])
    if kind == "words":
        return parts_of_text()[0]
    if kind == "filters":
        return read("mnist", ReadRequest()).take(np.arange(10_000))
    if kind == "gates":
        with np.load(folder / "fsdd" / "fsdd_logmel32.npz") as file:
            recordings = gw.Sequences(file["frames"], file["offsets"])
            return gw.Dataset(recordings, file["y"].astype(np.int64), gw.Classes(np.arange(10)))
    from scipy.sparse import csr_matrix

    with np.load(folder / "text_20newsgroups" / "bow.npz") as file:
        data, columns, starts, shape = (file[f"train_{end}"] for end in ("data", "indices", "indptr", "shape"))
        counts = csr_matrix((data.astype(np.float32), columns.astype(np.int32), starts), shape)
        return gw.Dataset(counts, np.ravel(file["y_train"]).astype(np.int64), gw.Classes(np.arange(20)))


def recipe_of(kind: str) -> Recipe:
    """The same network and rule for all."""
    if kind == "words":
        network = gw.FeedForwardLanguageModel(
            words=len(text()[1]), context=CONTEXT, size=100, units=(200,), dropout=0.0
        )
        rule = gw.Adam(1e-3)
        return language.recipe(
            network, epochs=1e4, batch=BATCH[kind] // STEPS, split=parts_of_text()[1], optimiser=rule
        )
    models: dict[str, Any] = {
        "filters": gw.Convolutional(channels=(6, 16), kernel=5, widths=(120, 84), dropout=0.0),
        "gates": gw.Recurrent(units=(64,), dropout=0.0),
        "logistic": gw.Mlp(widths=(), dropout=0.0),
        "hidden": gw.Mlp(widths=(64,), dropout=0.0),
    }
    sparse = kind in ("logistic", "hidden")
    return gw.defaults.classification(
        model=models[kind],
        optimiser=gw.Sgd(0.1) if sparse else gw.Adam(1e-3),
        batches=gw.Reshuffled(BATCH[kind]),
        stopping=gw.Off(epochs=10_000.0, every_epochs=1.0),
        split=gw.HoldOut(VALID, 0.0),
    )


class Gradwise:
    """What `fit` does between two looks at the clock: epochs in one compiled program."""

    def __init__(self, kind: str, dataset: gw.Dataset):
        self.recipe, self.outputs = recipe_of(kind), dataset.task.outputs
        train, valid, _ = self.recipe.split(dataset, key=jax.random.key(1))
        scaler, slots = self.recipe.scaler.fit(train.inputs, train.columns), sparse_slots(self.recipe, (train, valid))
        placed = [place_examples(part, scaler, target_units(train), None, slots) for part in (train, valid)]
        given = {"outputs": self.outputs, "classes": self.outputs, "key": jax.random.key(0)}
        self.problem, self.state = init(self.recipe, *placed, **given)
        self.updates, self.epochs = self.problem.updates_per_epoch, 1
        self.parameters = sum(leaf.size for leaf in jax.tree.leaves(self.state.parameters))
        self.monitor = Monitor(len(self.problem.train), self.outputs)

    def epoch(self) -> float:
        self.state, rows = intervals(self.problem, self.state, self.updates, self.epochs)
        return float(self.monitor.add(rows, 0.0, 0.0)[-1]["valid_loss"])

    def as_fit_does(self, seconds: float) -> None:
        """Makes a call as long as `fit` makes it."""
        self.epochs = max(1, min(AT_ONCE, int(CALL_SECONDS / seconds)))

    def population(self, slots: int) -> float:
        """Seconds of an epoch for each of so many networks at once."""
        several = None
        for slot in range(slots):
            keys = {"outputs": self.outputs, "key": jax.random.key(slot)}
            member, state = enter(self.recipe, self.problem.train, self.problem.valid, **keys)
            several = several or Population(member, state, self.problem.train, self.problem.valid, slots=slots)
            several.fill(slot, member, state)
        assert several is not None
        several.compiled = several.compile()
        return min(timed(lambda: jax.block_until_ready(several.interval().valid_loss)) for _ in range(3)) / slots


class Pairs(NamedTuple):
    """Examples of a peer."""

    inputs: np.ndarray
    targets: np.ndarray


def arrays_of(kind: str, ours: Gradwise) -> dict[str, Any]:
    """The scaled examples as gradwise trains on them, on the host; of a text each word with those before it."""
    if kind == "words":
        numbers = text()[0]
        rows = np.lib.stride_tricks.sliding_window_view(numbers, CONTEXT + 1)
        cut = int(len(rows) * (1 - VALID))
        return {"train": Pairs(rows[:cut, :-1], rows[:cut, -1]), "valid": Pairs(rows[cut:, :-1], rows[cut:, -1])}
    return {"train": jax.device_get(ours.problem.train), "valid": jax.device_get(ours.problem.valid)}


def _torch_network(kind: str, inputs: Any, outputs: int, packed: bool) -> Any:
    import torch
    from torch import nn

    if kind == "filters":
        layers = [nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
        layers += [nn.Conv2d(6, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        layers += [nn.Linear(16 * 7 * 7, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, outputs)]
        return nn.Sequential(*layers)
    if kind == "words":
        hidden = [nn.Embedding(outputs, 100), nn.Flatten(), nn.Linear(100 * CONTEXT, 200), nn.Tanh()]
        return nn.Sequential(*hidden, nn.Linear(200, outputs))

    class Gates(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(inputs.shape[2], 64, batch_first=True)
            self.top = nn.Linear(64, outputs)

        def forward(self, given: Any) -> Any:
            rows, lengths = given
            if packed:
                rows = rows[:, : int(lengths.max())]
                rows = nn.utils.rnn.pack_padded_sequence(rows, lengths.cpu(), True, enforce_sorted=False)
                return self.top(self.gru(rows)[1][0])
            states = self.gru(rows)[0]
            return self.top(states[torch.arange(len(rows), device=rows.device), lengths - 1])

    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            width = outputs if kind == "logistic" else 64
            self.bag = nn.EmbeddingBag(inputs.width + 1, width, mode="sum", sparse=True, padding_idx=inputs.width)
            nn.init.normal_(self.bag.weight, std=0.01)
            self.bias = nn.Parameter(torch.zeros(width))
            self.top = nn.Sequential() if kind == "logistic" else nn.Sequential(nn.ReLU(), nn.Linear(64, outputs))

        def forward(self, given: Any) -> Any:
            columns, values = given
            return self.top(self.bag(columns, per_sample_weights=values) + self.bias)

    return Gates() if kind == "gates" else Bag()


class Torch:
    """The usual loop on data that lie on the device."""

    def __init__(self, kind: str, arrays: dict[str, Any], outputs: int, device: str, compiled: bool):
        import torch

        self.torch, self.batch, self.device = torch, BATCH[kind], device
        packed = kind == "gates" and not compiled
        self.sets = {name: (self._inputs(kind, part.inputs), self._put(part.targets)) for name, part in arrays.items()}
        self.network = _torch_network(kind, arrays["train"].inputs, outputs, packed).to(device)
        sparse = kind in ("logistic", "hidden")
        rule = torch.optim.SGD if sparse else torch.optim.Adam
        self.optimiser = rule(self.network.parameters(), lr=0.1 if sparse else 1e-3)
        self.loss: Callable[..., Any] = lambda x, y: torch.nn.functional.cross_entropy(self.network(x), y)
        if compiled:
            self.loss = torch.compile(self.loss, dynamic=False)
        self.parameters = sum(one.numel() for one in self.network.parameters())

    def _put(self, array: Any) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(array)).long().to(self.device)

    def _inputs(self, kind: str, inputs: Any) -> tuple[Any, ...]:
        def put(array: Any) -> Any:
            return self.torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

        if kind == "filters":
            return (put(np.asarray(inputs)[:, None]),)
        if kind == "words":
            return (self._put(inputs),)
        if kind == "gates":
            lengths = (~np.isnan(inputs[:, :, 0])).sum(1)
            return put(np.nan_to_num(inputs)), put(lengths)
        return self._put(inputs.columns), put(inputs.values)

    def _take(self, part: str, rows: Any) -> tuple[Any, Any]:
        inputs, targets = self.sets[part]
        chosen = tuple(one[rows] for one in inputs)
        return chosen[0] if len(chosen) == 1 else chosen, targets[rows]

    def epoch(self) -> float:
        torch, count = self.torch, len(self.sets["train"][1])
        order = torch.randperm(count, device=self.device)
        for start in range(0, count - self.batch + 1, self.batch):
            self.optimiser.zero_grad(set_to_none=True)
            self.loss(*self._take("train", order[start : start + self.batch])).backward()
            self.optimiser.step()
        with torch.no_grad():
            x, y = self._take("valid", slice(None))
            return float(torch.nn.functional.cross_entropy(self.network(x), y).item())


class Keras:
    """`Model.fit` for one epoch with validation, on JAX."""

    def __init__(self, kind: str, arrays: dict[str, Any], outputs: int):
        import keras

        layers = keras.layers
        if kind == "filters":
            stack = [layers.Input((28, 28, 1)), layers.Conv2D(6, 5, padding="same", activation="relu")]
            stack += [layers.MaxPooling2D(), layers.Conv2D(16, 5, padding="same", activation="relu")]
            stack += [layers.MaxPooling2D(), layers.Flatten()]
            stack += [layers.Dense(120, activation="relu"), layers.Dense(84, activation="relu")]
        elif kind == "words":
            stack = [layers.Input((CONTEXT,)), layers.Embedding(outputs, 100), layers.Flatten()]
            stack += [layers.Dense(200, activation="tanh")]
        else:
            shape = arrays["train"].inputs.shape[1:]
            stack = [layers.Input(shape), layers.Masking(0.0), layers.GRU(64)]
        self.network = keras.Sequential([*stack, layers.Dense(outputs)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.network.compile(keras.optimizers.Adam(1e-3), loss)
        self.batch = BATCH[kind]
        self.sets = {name: (self._inputs(kind, part.inputs), np.asarray(part.targets)) for name, part in arrays.items()}
        self.parameters = self.network.count_params()

    def _inputs(self, kind: str, inputs: Any) -> np.ndarray:
        if kind == "words":
            return np.asarray(inputs)
        return np.asarray(inputs)[..., None] if kind == "filters" else np.nan_to_num(np.asarray(inputs))

    def epoch(self) -> float:
        seen = self.network.fit(*self.sets["train"], self.batch, validation_data=self.sets["valid"], verbose=0)
        return float(seen.history["val_loss"][-1])


def timed(work: Callable[[], Any], epochs: int = 1, least: float = 1.0) -> float:
    """Seconds of an epoch, from as many in a row as fill a second."""
    work()
    count, begun = 0, time.perf_counter()
    while count == 0 or time.perf_counter() - begun < least:
        work()
        count += epochs
    return (time.perf_counter() - begun) / count


def measure(kind: str, device: str, rounds: int, without: list[str], slots: int) -> dict[str, Any]:
    """Seconds of an epoch for everybody, and the loss that each has reached at the end."""
    dataset = data_of(kind)
    ours = Gradwise(kind, dataset)
    arrays, outputs = arrays_of(kind, ours), len(text()[1]) if kind == "words" else dataset.task.outputs
    where = "cuda" if device == "gpu" else "cpu"
    runners: dict[str, Any] = {"gradwise": ours}
    if "torch eager" not in without:
        runners["torch eager"] = Torch(kind, arrays, outputs, where, compiled=False)
    if "torch.compile" not in without:
        runners["torch.compile"] = Torch(kind, arrays, outputs, where, compiled=True)
    if "Keras on JAX" not in without and kind in ("filters", "gates", "words"):
        runners["Keras on JAX"] = Keras(kind, arrays, outputs)
    for name, runner in runners.items():
        begun = time.perf_counter()
        runner.epoch()
        print(
            f"  {name}: first epoch {time.perf_counter() - begun:.1f} s, {runner.parameters:,} parameters", flush=True
        )
    ours.as_fit_does(timed(ours.epoch, least=0.0))
    ours.epoch()
    best = dict.fromkeys(runners, math.inf)
    for _ in range(rounds):
        for name, runner in runners.items():
            best[name] = min(best[name], timed(runner.epoch, getattr(runner, "epochs", 1)))
    row = {
        "kind": kind,
        "title": KINDS[kind],
        "batch": BATCH[kind],
        "on": device,
        "examples": len(arrays["train"].targets),
        "parameters": {name: int(runner.parameters) for name, runner in runners.items()},
        "seconds": best,
        "ratios": {name: best[name] / best["gradwise"] for name in runners if name != "gradwise"},
        "loss": {name: runner.epoch() for name, runner in runners.items()},
    }
    if slots:
        row |= {"slots": slots, "population": ours.population(slots)}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--on", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slots", type=int, default=0, help="networks of a population to time as well")
    parser.add_argument("--without", action="append", default=[], help="leave a peer out")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "kinds.json")
    chosen = parser.parse_args()
    warnings.filterwarnings("ignore", module="torch")
    stored = json.loads(chosen.out.read_text()) if chosen.out.is_file() else {"rows": []}
    rows = {(row["kind"], row["on"]): row for row in stored["rows"]}
    for kind in chosen.kinds:
        print(kind, flush=True)
        row = measure(kind, chosen.on, chosen.rounds, chosen.without, chosen.slots)
        row |= {"machine": f"{platform.machine()}, {os.cpu_count()} cores, {jax.devices()[0].device_kind}"}
        row |= {"load": round(os.getloadavg()[2], 1), "date": str(datetime.date.today())}
        row |= {"command": "python " + shlex.join(["benchmarks/kinds.py", *sys.argv[1:]])}
        rows[kind, chosen.on] = row
        print(json.dumps({name: row[name] for name in ("seconds", "ratios", "loss")}), "wanted:", ASKED, flush=True)
        chosen.out.write_text(json.dumps({"asked": ASKED, "rows": list(rows.values())}, indent=1) + "\n")


if __name__ == "__main__":
    main()
