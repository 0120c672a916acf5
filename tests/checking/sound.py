"""Sound problems, usual and unusual: a check must raise no error on any of them. The false-alarm list is a test too.

    for problem in SOUND: checked(problem.make)                   # what `gradwise.check` says of it

The planted bugs (`bugs.py`) are these problems, or their like, with one thing wrong: data and networks are shared.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

ROWS = 32


@dataclass(frozen=True)
class Sound:
    """A problem with nothing wrong: its name, the arguments of `check`, and why it might be taken for a bug."""

    name: str
    make: Callable[[], dict[str, Any]]
    why: str


SOUND: list[Sound] = []


def sound(make: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    SOUND.append(Sound(make.__name__, make, (make.__doc__ or "").strip().splitlines()[0]))
    return make


def checked(make: Callable[[], dict[str, Any]]) -> Any:
    """What `gradwise.check` says of a problem."""
    from gradwise import check_problem

    given = make()
    return check_problem(given.pop("loss"), **given)


# ---- data


@functools.cache
def raw(name: str) -> tuple[np.ndarray, np.ndarray]:
    """A set that comes with scikit-learn, its rows in a seeded random order, at most 400 of them."""
    from sklearn import datasets

    inputs, targets = getattr(datasets, f"load_{name}")(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(targets))[:400]
    return inputs[order].astype(np.float32), targets[order]


def parted(inputs: np.ndarray, targets: np.ndarray, share: float = 0.7) -> tuple[Any, Any]:
    """The training and the test part."""
    count = int(len(targets) * share)
    return (inputs[:count], targets[:count]), (inputs[count:], targets[count:])


def classes(name: str) -> tuple[Any, Any]:
    """Training and test part with inputs scaled by the training part, and labels 0 .. K-1."""
    inputs, targets = raw(name)
    (known, _), _ = parted(inputs, targets)
    centre, spread = known.mean(axis=0), known.std(axis=0)
    inputs = inputs / 16 if name == "digits" else (inputs - centre) / spread
    return parted(inputs.astype(np.float32), targets.astype(np.int32))


def numbers() -> tuple[Any, Any]:
    """The diabetes set with inputs and targets scaled."""
    inputs, targets = raw("diabetes")
    inputs = (inputs / inputs.std(axis=0)).astype(np.float32)
    return parted(inputs, ((targets - targets.mean()) / targets.std()).astype(np.float32))


def sequences(rows: int = 200, length: int = 8, width: int = 3) -> dict[str, np.ndarray]:
    """Padded sequences of several lengths; the target is whether the first column's sum is positive."""
    generator = np.random.default_rng(3)
    lengths = generator.integers(3, length + 1, rows)
    mask = (np.arange(length) < lengths[:, None]).astype(np.float32)
    inputs = generator.normal(size=(rows, length, width)).astype(np.float32) * mask[..., None]
    return {"x": inputs, "mask": mask, "y": (inputs[..., 0].sum(axis=1) > 0).astype(np.int32)}


def first(data: Any, rows: int = ROWS) -> Any:
    return jax.tree.map(lambda leaf: leaf[:rows], data)


def problem(loss: Callable[..., Any], model: Any, parts: tuple[Any, Any], **more: Any) -> dict[str, Any]:
    """The arguments of `check` for a loss and a model on a training and a test part."""
    train, test = parts
    return {
        "loss": loss,
        "model": model,
        "batch": first(train),
        "train": train,
        "test": test,
        "optimiser": optax.adam(1e-2),
        **more,
    }


# ---- networks and losses


class Net(eqx.Module):
    """Layers with a non-linearity between them."""

    layers: tuple[eqx.nn.Linear, ...]
    bend: Callable[..., Any] = eqx.field(static=True)

    def __init__(self, widths: Sequence[int], bend: Callable[..., Any] = jnp.tanh, *, seed: int = 0) -> None:
        keys = jr.split(jr.key(seed), len(widths) - 1)
        shapes = zip(widths[:-1], widths[1:], keys, strict=True)
        self.layers = tuple(eqx.nn.Linear(n, m, key=key) for n, m, key in shapes)
        self.bend = bend

    def __call__(self, x: Any) -> Any:
        for layer in self.layers[:-1]:
            x = self.bend(layer(x))
        return self.layers[-1](x)


def reweighted(net: Any, change: Callable[[Any], Any], where: Callable[[str], bool] = lambda name: True) -> Any:
    """A network with other initial values in some of its parameters, picked by their path."""

    def new(path: Any, leaf: Any) -> Any:
        return change(leaf) if eqx.is_inexact_array(leaf) and where(jax.tree_util.keystr(path)) else leaf

    return jax.tree_util.tree_map_with_path(new, net)


def cross_entropy(model: Any, batch: Any) -> Any:
    inputs, labels = batch
    logits = jax.vmap(model)(inputs)
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))


def squared_error(model: Any, batch: Any) -> Any:
    inputs, targets = batch
    return jnp.mean((jax.vmap(model)(inputs)[:, 0] - targets) ** 2)


class Dropped(eqx.Module):
    """A rectifier network with dropout on its hidden layer."""

    first: eqx.nn.Linear
    second: eqx.nn.Linear
    dropout: eqx.nn.Dropout

    def __init__(self, inputs: int, outputs: int, *, seed: int = 0) -> None:
        one, two = jr.split(jr.key(seed))
        self.first = eqx.nn.Linear(inputs, 16, key=one)
        self.second = eqx.nn.Linear(16, outputs, key=two)
        self.dropout = eqx.nn.Dropout(0.3)

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        return self.second(self.dropout(jax.nn.relu(self.first(x)), key=key))


def dropped_loss(model: Dropped, batch: Any, key: Any) -> Any:
    inputs, labels = batch
    logits = jax.vmap(lambda x, k: model(x, key=k))(inputs, jr.split(key, len(inputs)))
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))


class Recurrent(eqx.Module):
    """A recurrent network whose state stands still on padding."""

    take: eqx.nn.Linear
    keep: eqx.nn.Linear
    read: eqx.nn.Linear

    def __init__(self, width: int, outputs: int, *, seed: int = 0) -> None:
        one, two, three = jr.split(jr.key(seed), 3)
        self.take = eqx.nn.Linear(width, 8, key=one)
        self.keep = eqx.nn.Linear(8, 8, use_bias=False, key=two)
        self.read = eqx.nn.Linear(8, outputs, key=three)

    def __call__(self, x: Any, mask: Any) -> Any:
        def step(state: Any, seen: Any) -> Any:
            now, present = seen
            new = jnp.tanh(self.take(now) + self.keep(state))
            return jnp.where(present > 0, new, state), None

        state, _ = jax.lax.scan(step, jnp.zeros(8), (x, mask))
        return self.read(state)


class Rectified(eqx.Module):
    """A recurrent network of rectifiers that begins as the identity."""

    take: eqx.nn.Linear
    keep: Any
    read: eqx.nn.Linear

    def __init__(self, width: int, outputs: int, *, seed: int = 0) -> None:
        one, two = jr.split(jr.key(seed))
        self.take = eqx.nn.Linear(width, 8, use_bias=False, key=one)
        self.keep = jnp.eye(8)
        self.read = eqx.nn.Linear(8, outputs, key=two)

    def __call__(self, x: Any) -> Any:
        def step(state: Any, now: Any) -> Any:
            return jax.nn.relu(self.take(now) + self.keep @ state), None

        return self.read(jax.lax.scan(step, jnp.zeros(8), x)[0])


class Stacked(eqx.Module):
    """Layers of one width in one array, scanned over: compiled once however many there are."""

    enter: eqx.nn.Linear
    hidden: dict[str, Any]
    read: eqx.nn.Linear
    activation: Callable[[Any], Any] = eqx.field(static=True)

    def __init__(self, activation: Callable[[Any], Any], *, seed: int = 0) -> None:
        one, two, three = jr.split(jr.key(seed), 3)
        self.enter = eqx.nn.Linear(13, 10, key=one)
        self.hidden = {"weight": jr.normal(two, (4, 10, 10)) / 10**0.5, "bias": jnp.zeros((4, 10))}
        self.read = eqx.nn.Linear(10, 3, key=three)
        self.activation = activation

    def __call__(self, x: Any) -> Any:
        def layer(x: Any, own: Any) -> Any:
            return self.activation(own["weight"] @ x + own["bias"]), None

        return self.read(jax.lax.scan(layer, self.activation(self.enter(x)), self.hidden)[0])


def sequence_loss(model: Any, batch: Any) -> Any:
    logits = jax.vmap(model)(batch["x"], batch["mask"])
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]))


def masked_problem(loss: Callable[..., Any], model: Any) -> dict[str, Any]:
    data = sequences()
    return {"loss": loss, "model": model, "batch": first(data), "train": data, "optimiser": optax.adam(1e-2)}


def normalised_net(seed: int = 0) -> Any:
    """A Flax NNX network with batch normalisation, for the 13 inputs and 3 classes of wine."""
    from flax import nnx

    class Normalised(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.first = nnx.Linear(13, 12, rngs=rngs)
            self.norm = nnx.BatchNorm(12, rngs=rngs)
            self.second = nnx.Linear(12, 3, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.second(nnx.relu(self.norm(self.first(x))))

    return Normalised(nnx.Rngs(seed))


def batched_cross_entropy(model: Any, batch: Any) -> Any:
    inputs, labels = batch
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(model(inputs), labels))


def evaluated_quietly(model: Any, inputs: Any) -> Any:
    model.eval()
    return model(inputs)


class Convolution(eqx.Module):
    """Two convolutions on 8 x 8 images, the mean of each map, and a linear layer."""

    one: eqx.nn.Conv2d
    two: eqx.nn.Conv2d
    read: eqx.nn.Linear

    def __init__(self, *, seed: int = 0) -> None:
        a, b, c = jr.split(jr.key(seed), 3)
        self.one = eqx.nn.Conv2d(1, 4, 3, key=a)
        self.two = eqx.nn.Conv2d(4, 8, 3, stride=2, key=b)
        self.read = eqx.nn.Linear(8, 10, key=c)

    def __call__(self, x: Any) -> Any:
        maps = jax.nn.relu(self.two(jax.nn.relu(self.one(x.reshape(1, 8, 8)))))
        return self.read(maps.mean(axis=(1, 2)))


# ---- the sound problems


@sound
def tanh_on_iris() -> dict[str, Any]:
    """The usual case: one hidden layer, standardised inputs, Adam."""
    return problem(cross_entropy, Net((4, 12, 3)), classes("iris"))


@sound
def dropout_on_digits() -> dict[str, Any]:
    """Dropout in training: the loss is another for every key."""
    return problem(dropped_loss, Dropped(64, 10), classes("digits"))


@sound
def batch_normalisation_on_wine() -> dict[str, Any]:
    """Training mixes the examples of a batch and evaluation uses other statistics, both on purpose (Flax NNX)."""
    return problem(batched_cross_entropy, normalised_net(), classes("wine"), evaluate=evaluated_quietly)


@sound
def diabetes_in_its_own_units() -> dict[str, Any]:
    """Targets between 25 and 346: the loss starts in the ten thousands."""
    inputs, targets = raw("diabetes")
    parts = parted((inputs / inputs.std(axis=0)).astype(np.float32), targets.astype(np.float32))
    return problem(squared_error, Net((10, 12, 1)), parts, optimiser=optax.adam(0.1))


@sound
def convolution_on_digits() -> dict[str, Any]:
    """Shared weights and pooled maps; some pixels of the border are always blank."""
    return problem(cross_entropy, Convolution(), classes("digits"))


@sound
def recurrent_scan_with_masks() -> dict[str, Any]:
    """A scan over padded sequences that looks at the mask as it should."""
    return masked_problem(sequence_loss, Recurrent(3, 2))


@sound
def recurrent_rectifiers_after_padding() -> dict[str, Any]:
    """Sequences that end together, blank before they begin: the first steps have nothing to react to."""
    data = sequences()
    whole = (np.concatenate([np.zeros((200, 3, 3), np.float32), data["x"]], axis=1), data["y"])
    return problem(cross_entropy, Rectified(3, 2), (first(whole, 150), jax.tree.map(lambda a: a[150:], whole)))


@sound
def layers_scanned_over() -> dict[str, Any]:
    """Four layers in one array, scanned over as large models do."""
    return problem(cross_entropy, Stacked(jnp.tanh), classes("wine"))


@sound
def tied_autoencoder() -> dict[str, Any]:
    """The decoder is the transposed encoder: one parameter used twice, and a batch without targets."""
    images = classes("digits")[0][0]
    model = {"weight": 0.1 * jr.normal(jr.key(0), (64, 12)), "code": jnp.zeros(12), "image": jnp.zeros(64)}

    def apply(model: Any, images: Any) -> Any:
        code = jax.nn.sigmoid(images @ model["weight"] + model["code"])
        return code @ model["weight"].T + model["image"]

    def loss(model: Any, images: Any) -> Any:
        return jnp.mean(jnp.sum((apply(model, images) - images) ** 2, axis=1))

    return {"loss": loss, "model": model, "batch": images[:ROWS], "apply": apply, "train": images} | {
        "optimiser": optax.adam(1e-2)
    }


@sound
def deep_linear_net() -> dict[str, Any]:
    """Six layers without any non-linearity, as in studies of learning dynamics."""
    return problem(squared_error, Net((10, 8, 8, 8, 8, 8, 1), bend=lambda x: x), numbers())


class Residual(eqx.Module):
    """Blocks of layer normalisation, a layer and a skip."""

    into: eqx.nn.Linear
    norms: tuple[eqx.nn.LayerNorm, ...]
    layers: tuple[eqx.nn.Linear, ...]
    out: eqx.nn.Linear

    def __init__(self, inputs: int, outputs: int, *, seed: int = 0) -> None:
        keys = jr.split(jr.key(seed), 5)
        self.into = eqx.nn.Linear(inputs, 12, key=keys[0])
        self.norms = tuple(eqx.nn.LayerNorm(12) for _ in range(3))
        self.layers = tuple(eqx.nn.Linear(12, 12, key=key) for key in keys[1:4])
        self.out = eqx.nn.Linear(12, outputs, key=keys[4])

    def __call__(self, x: Any) -> Any:
        x = self.into(x)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + jax.nn.gelu(layer(norm(x)))
        return self.out(x)


@sound
def layer_normalisation_and_skips() -> dict[str, Any]:
    """Layer normalisation divides by a deviation; the bias before it changes little."""
    return problem(cross_entropy, Residual(13, 3), classes("wine"))


@sound
def straight_through_rounding() -> dict[str, Any]:
    """Rounding forwards, the identity backwards: the gradient is not the slope of the loss, on purpose."""

    def quantised(x: Any) -> Any:
        return x + jax.lax.stop_gradient(jnp.round(4 * x) / 4 - x)

    return problem(cross_entropy, Net((4, 12, 3), bend=lambda x: quantised(jnp.tanh(x))), classes("iris"))


@sound
def in_batch_contrast() -> dict[str, Any]:
    """Every example is a negative of the others: the loss mixes the batch, on purpose."""
    (inputs, _), _ = classes("wine")
    other = inputs + 0.1 * np.random.default_rng(1).normal(size=inputs.shape).astype(np.float32)

    def loss(model: Any, batch: Any) -> Any:
        codes = [jax.vmap(model)(view) for view in batch]
        one, two = (code / jnp.sqrt(jnp.sum(code**2, axis=1, keepdims=True) + 1e-6) for code in codes)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(one @ two.T / 0.2, jnp.arange(len(one))))

    train = (inputs, other)
    return {"loss": loss, "model": Net((13, 12, 6)), "batch": first(train), "train": train} | {
        "optimiser": optax.adam(1e-2)
    }


@sound
def distances_between_classes() -> dict[str, Any]:
    """Three classes and two outputs: the outputs are places, not scores, and the loss compares all pairs."""

    def loss(model: Any, batch: Any) -> Any:
        inputs, labels = batch
        places = jax.vmap(model)(inputs)
        apart = jnp.sqrt(jnp.sum((places[:, None] - places[None]) ** 2, axis=-1) + 1e-6)
        same = labels[:, None] == labels[None]
        return jnp.mean(jnp.where(same, apart, jnp.maximum(0.0, 1.0 - apart)))

    return problem(loss, Net((4, 12, 2)), classes("iris"))


@sound
def embedding_with_rare_words() -> dict[str, Any]:
    """Most rows of the embedding do not occur in the batch and get no gradient."""
    generator = np.random.default_rng(2)
    ranks = np.minimum(generator.zipf(1.6, size=(300, 6)) - 1, 119)
    labels = (ranks.min(axis=1) > 0).astype(np.int32)
    one, two = jr.split(jr.key(0))
    model = {"words": jr.normal(one, (120, 8)), "read": 0.3 * jr.normal(two, (8, 2)), "bias": jnp.zeros(2)}

    def apply(model: Any, words: Any) -> Any:
        return jnp.tanh(model["words"][words]).mean(axis=1) @ model["read"] + model["bias"]

    def loss(model: Any, batch: Any) -> Any:
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(apply(model, batch[0]), batch[1]))

    return problem(loss, model, parted(ranks.astype(np.int32), labels), apply=apply)


@sound
def summed_loss_with_a_small_rate() -> dict[str, Any]:
    """The sum over the batch is a right criterion when the rate knows of it."""

    def loss(model: Any, batch: Any) -> Any:
        return len(batch[0]) * cross_entropy(model, batch)

    return problem(loss, Net((4, 12, 3)), classes("iris"), optimiser=optax.sgd(0.1 / ROWS))


@sound
def random_labels() -> dict[str, Any]:
    """Labels drawn by lot, as when capacity is studied: nothing to generalise, nothing wrong."""
    (inputs, labels), _ = classes("digits")
    drawn = np.random.default_rng(5).integers(0, 10, len(labels)).astype(np.int32)
    return problem(cross_entropy, Net((64, 16, 10)), parted(inputs, drawn))


@sound
def strong_weight_decay() -> dict[str, Any]:
    """A penalty of the loss's own size: strong, and what validation may well choose."""

    def loss(model: Any, batch: Any) -> Any:
        return cross_entropy(model, batch) + 0.02 * sum(jnp.sum(layer.weight**2) for layer in model.layers)

    return problem(loss, Net((13, 12, 3)), classes("wine"))


@sound
def mixture_of_two_gaussians() -> dict[str, Any]:
    """The negative log-likelihood of a density: it may go below nought, and without a bound."""
    generator = np.random.default_rng(4)
    inputs = generator.uniform(-1, 1, (200, 2)).astype(np.float32)
    sides = generator.choice([-1.0, 1.0], 200)
    targets = (sides * (0.3 + inputs[:, 0] ** 2) + 0.05 * generator.normal(size=200)).astype(np.float32)

    def loss(model: Any, batch: Any) -> Any:
        inputs, targets = batch
        weights, means, spreads = jnp.split(jax.vmap(model)(inputs), 3, axis=1)
        spreads = jnp.maximum(spreads, -3.0)
        logs = -0.5 * ((targets[:, None] - means) / jnp.exp(spreads)) ** 2 - spreads
        return -jnp.mean(jax.nn.logsumexp(jax.nn.log_softmax(weights) + logs, axis=1))

    return problem(loss, Net((2, 12, 6)), parted(inputs, targets))


@sound
def several_labels_at_once() -> dict[str, Any]:
    """Sigmoid cross-entropy with several right answers an example."""
    (inputs, labels), (others, there) = classes("digits")
    marks = [np.stack([one % 2, one > 4, one % 3 == 0], axis=1).astype(np.float32) for one in (labels, there)]

    def loss(model: Any, batch: Any) -> Any:
        return jnp.mean(optax.sigmoid_binary_cross_entropy(jax.vmap(model)(batch[0]), batch[1]))

    return problem(loss, Net((64, 12, 3), jax.nn.relu), ((inputs, marks[0]), (others, marks[1])))


@sound
def two_in_a_hundred() -> dict[str, Any]:
    """A heavy imbalance: hardly any positive example in a batch."""
    generator = np.random.default_rng(6)
    inputs = generator.normal(size=(400, 5)).astype(np.float32)
    scores = inputs[:, 0] + 0.5 * generator.normal(size=400)
    labels = (scores > np.quantile(scores, 0.98)).astype(np.int32)
    return problem(cross_entropy, Net((5, 8, 2)), parted(inputs, labels))


class Features(eqx.Module):
    """Random features that stay as they are, and a linear layer that learns."""

    features: eqx.nn.Linear
    read: eqx.nn.Linear

    def __init__(self, *, seed: int = 0) -> None:
        one, two = jr.split(jr.key(seed))
        self.features = eqx.nn.Linear(4, 16, key=one)
        self.read = eqx.nn.Linear(16, 3, key=two)

    def __call__(self, x: Any) -> Any:
        return self.read(jnp.cos(jax.lax.stop_gradient(self.features)(x)))


@sound
def frozen_random_features() -> dict[str, Any]:
    """A layer that is not meant to learn, and said so."""
    return problem(cross_entropy, Features(), classes("iris"), frozen="features.*")


@jax.custom_vjp
def affine(weight: Any, bias: Any, x: Any) -> Any:
    return x @ weight + bias


affine.defvjp(
    lambda weight, bias, x: (x @ weight + bias, (weight, x)),
    lambda kept, g: (kept[1].T @ g, g.sum(axis=0), g @ kept[0].T),
)


def affine_model(widths: Sequence[int], *, seed: int = 0) -> list[dict[str, Any]]:
    keys = jr.split(jr.key(seed), len(widths) - 1)
    return [
        {"weight": jr.normal(key, (n, m)) / n**0.5, "bias": jnp.zeros(m)}
        for n, m, key in zip(widths[:-1], widths[1:], keys, strict=True)
    ]


@sound
def right_derivative_by_hand() -> dict[str, Any]:
    """A layer with a backward pass of its own, and a right one; plain lists and dictionaries."""

    def apply(model: Any, inputs: Any) -> Any:
        for layer in model[:-1]:
            inputs = jnp.tanh(affine(layer["weight"], layer["bias"], inputs))
        return affine(model[-1]["weight"], model[-1]["bias"], inputs)

    def loss(model: Any, inputs: Any, labels: Any) -> Any:
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(apply(model, inputs), labels))

    return problem(loss, affine_model((4, 10, 10, 3)), classes("iris"), apply=apply)


@sound
def logistic_regression() -> dict[str, Any]:
    """One unit, initial weights of nought (there is no symmetry to break), plain pytrees."""
    inputs, labels = raw("breast_cancer")
    parts = parted(((inputs - inputs.mean(axis=0)) / inputs.std(axis=0)).astype(np.float32), labels.astype(np.int32))

    def apply(model: Any, inputs: Any) -> Any:
        return inputs @ model["weight"] + model["bias"]

    def loss(model: Any, batch: Any) -> Any:
        return jnp.mean(optax.sigmoid_binary_cross_entropy(apply(model, batch[0]), batch[1]))

    return problem(loss, {"weight": jnp.zeros(30), "bias": jnp.zeros(())}, parts, apply=apply)


class Scaled(eqx.Module):
    """Scales its inputs by itself, with statistics that are constants of the network."""

    centre: np.ndarray = eqx.field(static=True)
    spread: np.ndarray = eqx.field(static=True)
    net: Net

    def __call__(self, x: Any) -> Any:
        return self.net((x - np.asarray(self.centre)) / np.asarray(self.spread))


@sound
def huge_units_scaled_inside() -> dict[str, Any]:
    """Inputs in millions and in millionths; the network's own first step makes them comparable."""
    (inputs, labels), (others, there) = classes("iris")
    units = np.asarray([1e6, 1e-4, 1.0, 1e3], np.float32)
    train, test = (inputs * units + 5 * units, labels), (others * units + 5 * units, there)
    model = Scaled(tuple(train[0].mean(axis=0).tolist()), tuple(train[0].std(axis=0).tolist()), Net((4, 12, 3)))
    return problem(cross_entropy, model, (train, test))


@sound
def hinge_loss() -> dict[str, Any]:
    """A loss with kinks, flat for examples that are right by a margin."""

    def loss(model: Any, batch: Any) -> Any:
        scores = jax.vmap(model)(batch[0])
        right = jnp.take_along_axis(scores, batch[1][:, None], axis=1)
        margins = jnp.maximum(0.0, 1.0 + scores - right) * (1 - jax.nn.one_hot(batch[1], 3))
        return jnp.mean(jnp.max(margins, axis=1))

    return problem(loss, Net((4, 12, 3)), classes("iris"))


@sound
def momentum_at_a_good_rate() -> dict[str, Any]:
    """Plain gradient descent with momentum."""
    return problem(cross_entropy, Net((13, 12, 3)), classes("wine"), optimiser=optax.sgd(0.05, momentum=0.9))


@sound
def a_line_search() -> dict[str, Any]:
    """L-BFGS with a line search: updates that need the loss itself, and steps of any size."""
    (inputs, targets), test = numbers()
    given = problem(squared_error, Net((10, 8, 1)), ((inputs, targets), test), optimiser=optax.lbfgs())
    return {**given, "train": None, "test": None}


@sound
def parity() -> dict[str, Any]:
    """The parity of three bits out of six: no single input says anything about the target."""
    bits = np.random.default_rng(7).integers(0, 2, (300, 6))
    labels = (bits[:, :3].sum(axis=1) % 2).astype(np.int32)
    return problem(cross_entropy, Net((6, 16, 2)), parted((2 * bits - 1).astype(np.float32), labels))


@sound
def weighted_examples() -> dict[str, Any]:
    """Weights of the examples, used as they should be."""
    (inputs, labels), _ = classes("iris")
    weights = np.random.default_rng(8).uniform(0.2, 2.0, len(labels)).astype(np.float32)
    data = {"x": inputs, "y": labels, "weights": weights}

    def loss(model: Any, batch: Any) -> Any:
        logits = jax.vmap(model)(batch["x"])
        each = optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"])
        return jnp.sum(batch["weights"] * each) / jnp.sum(batch["weights"])

    return {"loss": loss, "model": Net((4, 12, 3)), "batch": first(data), "train": data} | {
        "optimiser": optax.adam(1e-2)
    }


@sound
def variational_autoencoder() -> dict[str, Any]:
    """The loss draws a code for every example: its gradient is noisy, its key matters, and its bound is not nought."""
    images = classes("digits")[0][0]
    model = {"encoder": Net((64, 12, 8)), "decoder": Net((4, 12, 64), seed=1)}

    def loss(model: Any, images: Any, key: Any) -> Any:
        means, logs = jnp.split(jax.vmap(model["encoder"])(images), 2, axis=1)
        codes = means + jnp.exp(0.5 * logs) * jr.normal(key, means.shape)
        error = jnp.sum((jax.vmap(model["decoder"])(codes) - images) ** 2, axis=1)
        return jnp.mean(error + 0.05 * jnp.sum(means**2 + jnp.exp(logs) - 1 - logs, axis=1))

    return {"loss": loss, "model": model, "batch": images[:ROWS], "train": images, "optimiser": optax.adam(3e-3)}


@sound
def differential_equation() -> dict[str, Any]:
    """The loss holds a derivative of the network with respect to its input: u' = -u, u(0) = 1. There is no target."""
    points = np.random.default_rng(9).uniform(0, 2, (200, 1)).astype(np.float32)

    def loss(model: Any, points: Any) -> Any:
        def height(t: Any) -> Any:
            return 1 + t * model(t[None])[0]

        return jnp.mean(jax.vmap(lambda t: (jax.grad(height)(t) + height(t)) ** 2)(points[:, 0]))

    return {"loss": loss, "model": Net((1, 12, 1)), "batch": points[:ROWS], "optimiser": optax.adam(1e-2)}


class Attention(eqx.Module):
    """Words attend to one another; their mean is read."""

    words: eqx.nn.Embedding
    places: Any
    attention: eqx.nn.MultiheadAttention
    read: eqx.nn.Linear

    def __init__(self, *, seed: int = 0) -> None:
        keys = jr.split(jr.key(seed), 4)
        self.words = eqx.nn.Embedding(12, 8, key=keys[0])
        self.places = 0.5 * jr.normal(keys[1], (6, 8))
        self.attention = eqx.nn.MultiheadAttention(2, 8, key=keys[2])
        self.read = eqx.nn.Linear(8, 2, key=keys[3])

    def __call__(self, words: Any) -> Any:
        x = jax.vmap(self.words)(words) + self.places
        return self.read((x + self.attention(x, x, x)).mean(axis=0))


def word_order(rows: int = 300) -> tuple[Any, Any]:
    """Whether the first word is the larger of the first two."""
    words = np.random.default_rng(10).integers(0, 12, (rows, 6)).astype(np.int32)
    return parted(words, (words[:, 0] > words[:, 1]).astype(np.int32))


@sound
def attention_over_words() -> dict[str, Any]:
    """Whole numbers as inputs: there is no derivative with respect to them."""
    return problem(cross_entropy, Attention(), word_order())


@sound
def a_teacher_without_gradient() -> dict[str, Any]:
    """Two views, one of them behind a stopped gradient (as in SimSiam): not the slope of the loss, on purpose."""
    (inputs, _), _ = classes("wine")
    other = inputs + 0.1 * np.random.default_rng(1).normal(size=inputs.shape).astype(np.float32)
    model = {"encoder": Net((13, 12, 6)), "guess": Net((6, 8, 6), seed=1)}

    def unit(x: Any) -> Any:
        return x / jnp.sqrt(jnp.sum(x**2, axis=-1, keepdims=True) + 1e-6)

    def loss(model: Any, batch: Any) -> Any:
        codes = [jax.vmap(model["encoder"])(view) for view in batch]
        guess = jax.vmap(model["guess"])(codes[0])
        return -jnp.mean(jnp.sum(unit(guess) * unit(jax.lax.stop_gradient(codes[1])), axis=1))

    train = (inputs, other)
    return {"loss": loss, "model": model, "batch": first(train), "train": train, "optimiser": optax.adam(1e-2)}


@sound
def dropout_in_flax() -> dict[str, Any]:
    """Flax NNX with dropout: noise in training, none once `eval()` is called."""
    return problem(batched_cross_entropy, dropped_net(), classes("iris"), evaluate=evaluated_quietly)


def dropped_net(seed: int = 0) -> Any:
    from flax import nnx

    class Noisy(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.first = nnx.Linear(4, 16, rngs=rngs)
            self.dropout = nnx.Dropout(0.3, rngs=rngs)
            self.second = nnx.Linear(16, 3, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.second(self.dropout(nnx.relu(self.first(x))))

    return Noisy(nnx.Rngs(seed))
