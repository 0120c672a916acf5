"""The problems that optimisers are compared on: logistic regression, a classifier and a deep auto-encoder of digits."""

import gzip
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from autoencoder import WIDTHS, Autoencoder
from jaxtyping import Array, Scalar

from gradwise import defaults
from gradwise.criteria.losses import SigmoidLoss, SoftmaxLoss
from gradwise.criteria.penalties import L2
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Reshuffled
from gradwise.data.scaling import NoScaling
from gradwise.models.activations import Tanh
from gradwise.models.initial_weights import Glorot, SparseWeights, ZeroWeights
from gradwise.models.mlp import Mlp
from gradwise.training.stopping import Off


def folder() -> Path:
    """Where the data are."""
    place = os.environ.get("GRADWISE_DATA")
    if not place:
        raise SystemExit("error: GRADWISE_DATA is not set: it names the folder with the data sets.")
    return Path(place)


@dataclass(frozen=True)
class Problem:
    """Examples, the recipe around an optimiser, and how the result is judged.

    `judge` gives the scores on the validation and the test part, told beside the loss; `choice` is what the random
    search minimises. Neither part is ever trained on.
    """

    name: str
    about: str
    train: Examples
    valid: Examples
    outputs: int
    batch: int
    recipe: Callable[[Any, int], Any]
    judge: Callable[[Any, Any], tuple[Scalar, Scalar]]
    choice: Callable[[Any], float]
    optimum: float | None = None
    reference: float | None = None


# --- logistic regression


def _svmlight(path: Path) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_svmlight_file

    with gzip.open(path) as file:
        inputs, targets = load_svmlight_file(file)
    return np.asarray(inputs.todense(), np.float32), (targets > 0).astype(np.int32)


def _logistic_sets() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    adult = _svmlight(folder() / "libsvm_adult_a8a" / "a8a.libsvm.gz")
    web = _svmlight(folder() / "libsvm_w8a" / "w8a.libsvm.gz")
    spam = np.load(folder() / "tabular" / "spambase.npz")
    table = np.log1p(np.asarray(spam["X"], np.float32))
    yield "adult", *adult
    yield "web", *web
    yield "spam", (table - table.mean(0)) / table.std(0), spam["y"].astype(np.int32)


def _logistic_optimum(inputs: np.ndarray, targets: np.ndarray) -> float:
    """The least criterion, by SciPy in 64 bits; weights and biases penalised by half their squares, times 1/n."""
    from scipy.optimize import minimize

    x = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1).astype(np.float64)
    signs = 2.0 * targets - 1.0

    def both(w: np.ndarray) -> tuple[float, np.ndarray]:
        margin = signs * (x @ w)
        slope = -signs / (1.0 + np.exp(margin))
        value = np.logaddexp(0.0, -margin).mean() + 0.5 * (w @ w) / len(x)
        return value, x.T @ slope / len(x) + w / len(x)

    options = {"maxiter": 5000, "maxfun": 20_000, "ftol": 1e-16, "gtol": 1e-10}
    return float(minimize(both, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B", options=options).fun)


def _logistic(options: Any) -> Iterator[Problem]:
    for name, inputs, targets in _logistic_sets():
        order = np.random.default_rng(0).permutation(len(inputs))
        cut = len(inputs) * 9 // 10
        first, last = order[:cut], order[cut:]
        train = Examples(jnp.asarray(inputs[first]), jnp.asarray(targets[first, None], jnp.float32))
        valid = Examples(jnp.asarray(inputs[last]), jnp.asarray(targets[last, None], jnp.float32))
        optimum = _logistic_optimum(inputs[first], targets[first])

        def recipe(spec: Any, batch: int) -> Any:
            return defaults.multilabel(
                scaler=NoScaling(),
                batches=Reshuffled(batch),
                model=Mlp(widths=(), output_initial=ZeroWeights(), dropout=0.0),
                criterion=Supervised(SigmoidLoss(), penalties=(L2(0.5, where="output.*"),)),
                optimiser=spec,
                stopping=Off(epochs=100_000),
            )

        def judge(criterion: Any, model: Any, valid: Examples = valid) -> tuple[Scalar, Scalar]:
            score = criterion.examples(model, valid.inputs, valid.targets)[0].mean()
            return score, score

        about = f"L2 logistic regression, {cut} x {inputs.shape[1]}, lambda 1/n"
        yield Problem(f"logistic_{name}", about, train, valid, 1, 32, recipe, judge, lambda curve: curve.final, optimum)


# --- digits


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """MNIST's pixels in [0, 1] and labels: training, then test."""
    place = folder() / "mnist"

    def read(name: str, skip: int) -> np.ndarray:
        return np.frombuffer(gzip.decompress((place / f"{name}.gz").read_bytes())[skip:], np.uint8)

    found = []
    for part in ("train", "t10k"):
        found.append(read(f"{part}-images-idx3-ubyte", 16).reshape(-1, 784).astype(np.float32) / 255.0)
        found.append(read(f"{part}-labels-idx1-ubyte", 8).astype(np.int32))
    return found[0], found[1], found[2], found[3]


def _mnist(options: Any) -> Iterator[Problem]:
    inputs, targets, test_inputs, test_targets = digits()
    count = options.examples or 50_000
    train = Examples(jnp.asarray(inputs[:count]), jnp.asarray(targets[:count]))
    valid = Examples(jnp.asarray(inputs[50_000:]), jnp.asarray(targets[50_000:]))
    test = Examples(jnp.asarray(test_inputs), jnp.asarray(test_targets))

    def recipe(spec: Any, batch: int) -> Any:
        return defaults.classification(
            scaler=NoScaling(),
            batches=Reshuffled(batch),
            model=Mlp(widths=(500, 300), activation=Tanh(), dropout=0.0),
            criterion=Supervised(SoftmaxLoss(), penalties=()),
            optimiser=spec,
            stopping=Off(epochs=100_000),
        )

    def judge(criterion: Any, model: Any) -> tuple[Scalar, Scalar]:
        parts = (valid, test)
        errors = [criterion.examples(model, part.inputs, part.targets)[0].mean() for part in parts]
        return errors[0], errors[1]

    yield Problem(
        "mnist",
        f"784-500-300-10, tanh, softmax, {count} digits, B = 100",
        train,
        valid,
        10,
        100,
        recipe,
        judge,
        lambda curve: min(curve.valid) if np.isfinite(curve.loss[-1]) else math.inf,
    )


def squared_error(model: Any, images: Array) -> Scalar:
    """Summed over the pixels of a digit, mean over digits, in pieces."""

    def piece(part: Array) -> Scalar:
        return jnp.sum((jax.nn.sigmoid(jax.vmap(lambda x: model(x))(part)) - part) ** 2)

    pieces = images.reshape(-1, math.gcd(images.shape[0], 2500), images.shape[1])
    return jax.lax.map(piece, pieces).sum() / images.shape[0]


def _autoencoder(options: Any) -> Iterator[Problem]:
    inputs, _, test_inputs, _ = digits()
    count = options.examples or 60_000
    images = jnp.asarray(inputs[:count])
    train = Examples(images, images)
    valid = Examples(jnp.asarray(test_inputs), jnp.asarray(test_inputs))

    def recipe(spec: Any, batch: int) -> Any:
        # The published initial weights for batch methods; Glorot's, with a sigmoid's gain, suit stochastic ones better.
        initial = SparseWeights() if batch >= count else Glorot()
        return defaults.multilabel(
            scaler=NoScaling(),
            batches=Reshuffled(batch),
            model=Autoencoder([784, *WIDTHS, *WIDTHS[-2::-1], 784], initial, key=jr.key(0)),
            criterion=Supervised(SigmoidLoss(), penalties=()),
            optimiser=spec,
            stopping=Off(epochs=100_000),
        )

    yield Problem(
        "autoencoder",
        f"784-1000-500-250-30 and back, sigmoid units, cross-entropy, {count} digits, B = 200",
        train,
        valid,
        784,
        200,
        recipe,
        # The squared error of the training digits, as published, then that of the test digits.
        lambda criterion, model: (squared_error(model, images), squared_error(model, valid.inputs)),
        lambda curve: curve.final,
        reference=1.64,
    )


def problems(name: str, options: Any) -> Iterator[Problem]:
    """The problems of a name, one after another; `logistic_web` is one of those of `logistic`."""
    kinds = {"logistic": _logistic, "mnist": _mnist, "autoencoder": _autoencoder}
    kind, _, one = name.partition("_")
    if kind not in kinds:
        raise SystemExit(f"error: there is no problem `{name}`. They are: {', '.join(kinds)}.")
    yield from (problem for problem in kinds[kind](options) if not one or problem.name == name)
