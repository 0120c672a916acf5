"""Planted bugs in small realistic problems: each must be found, at its place, and nothing else be called an error.

    for bug in BUGS: said = checked(bug.make); bug.found_in(said.findings), bug.astray(said.findings)

Each is a sound problem (`sound.py`) with one thing wrong. The first line of its docstring says what, the rest how such
a bug comes about. They are written from experience, not from what the checks look at.
"""

import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from tests.checking.sound import (
    Attention,
    Dropped,
    Net,
    Recurrent,
    Stacked,
    affine_model,
    batched_cross_entropy,
    classes,
    cross_entropy,
    dropped_loss,
    dropped_net,
    first,
    masked_problem,
    numbers,
    parted,
    problem,
    raw,
    reweighted,
    sequence_loss,
    squared_error,
    word_order,
)

IRIS = ("sepal_length", "sepal_width", "petal_length", "petal_width")
DIABETES = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")


@dataclass(frozen=True)
class Bug:
    """A planted bug: how to make it, which codes count as finding it, and what the finding has to name.

    `also` are codes of errors that follow directly from it (each with a reason where it is given); any other error is a
    false alarm. `peers` names the tools to which the bug is within reach in principle.
    """

    name: str
    make: Callable[[], dict[str, Any]]
    codes: frozenset[str]
    where: str
    what: str
    also: frozenset[str] = field(default=frozenset())
    peers: tuple[str, ...] = ()

    def found_in(self, findings: Iterable[Any]) -> Any:
        """The first finding that names this bug and its place, or None."""
        for one in findings:
            named = re.search(self.where, one.where) or re.search(self.where, one.what)
            if one.code in self.codes and one.level in ("error", "warning") and named:
                return one
        return None

    def astray(self, findings: Iterable[Any]) -> list[Any]:
        """The errors that this bug does not explain."""
        return [one for one in findings if one.level == "error" and one.code not in self.codes | self.also]


BUGS: list[Bug] = []


def bug(codes: str, where: str, *, also: str = "", peers: str = "") -> Callable[..., Any]:
    def planted(make: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
        what = (make.__doc__ or "").strip().splitlines()[0]
        sets = (frozenset(text.split()) for text in (codes, also))
        BUGS.append(Bug(make.__name__, make, next(sets), where, what, next(sets), tuple(peers.split())))
        return make

    return planted


# ---- derivatives written by hand


@jax.custom_jvp
def soft_clip(x: Any) -> Any:
    return jnp.log1p(jnp.exp(-jnp.abs(x))) + jnp.maximum(x, 0.0)


@soft_clip.defjvp
def _soft_clip_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return soft_clip(x), -jax.nn.sigmoid(x) * t  # the sign


@bug("GW101", r"soft_clip", peers="check_grads gradcheck overfit_batches")
def wrong_sign_in_a_custom_jvp() -> dict[str, Any]:
    """A smooth rectifier whose own derivative has the wrong sign.

    Somebody differentiated log(1 + exp(-x)) and forgot that the function had become log(1 + exp(x)).
    """
    return problem(cross_entropy, Net((4, 12, 3), soft_clip), classes("iris"))


@jax.custom_vjp
def negated(weight: Any, bias: Any, x: Any) -> Any:
    return x @ weight + bias


negated.defvjp(
    lambda weight, bias, x: (x @ weight + bias, (weight, x)),
    lambda kept, g: (-kept[1].T @ g, g.sum(axis=0), g @ kept[0].T),
)


@jax.custom_vjp
def crossed(weight: Any, bias: Any, x: Any) -> Any:
    return x @ weight + bias


crossed.defvjp(
    lambda weight, bias, x: (x @ weight + bias, (weight, x)),
    lambda kept, g: (kept[1].T @ g, g.sum(axis=0), g @ kept[0]),  # should be transposed
)


@jax.custom_vjp
def averaged(weight: Any, bias: Any, x: Any) -> Any:
    return x @ weight + bias


averaged.defvjp(
    lambda weight, bias, x: (x @ weight + bias, (weight, x)),
    lambda kept, g: (kept[1].T @ g, g.mean(axis=0), g @ kept[0].T),  # should be a sum
)


def by_hand(dense: Callable[..., Any], widths: tuple[int, ...]) -> dict[str, Any]:
    """A network in plain lists and dictionaries on iris, its layers computed by `dense`."""

    def apply(model: Any, inputs: Any) -> Any:
        for layer in model[:-1]:
            inputs = jnp.tanh(dense(layer["weight"], layer["bias"], inputs))
        return dense(model[-1]["weight"], model[-1]["bias"], inputs)

    def loss(model: Any, inputs: Any, labels: Any) -> Any:
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(apply(model, inputs), labels))

    return problem(loss, affine_model(widths), classes("iris"), apply=apply)


@bug("GW101", r"negated|weight", peers="check_grads gradcheck overfit_batches")
def wrong_sign_in_a_custom_vjp() -> dict[str, Any]:
    """A layer's backward pass gives minus the gradient of its weights.

    A fused kernel's backward pass was written for `y - x @ w` and kept when the forward pass changed.
    """
    return by_hand(negated, (4, 12, 3))


@bug("GW101 GW102", r"crossed|^0\b|\b0\.weight", peers="check_grads gradcheck")
def transposed_weights_backwards() -> dict[str, Any]:
    """The backward pass of a square layer multiplies by the weights where it should by their transpose.

    All hidden layers are of one width, so no shape complains.
    """

    def apply(model: Any, inputs: Any) -> Any:
        hidden = jnp.tanh(inputs @ model[0]["weight"] + model[0]["bias"])
        hidden = jnp.tanh(crossed(model[1]["weight"], model[1]["bias"], hidden))
        return hidden @ model[2]["weight"] + model[2]["bias"]

    def loss(model: Any, inputs: Any, labels: Any) -> Any:
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(apply(model, inputs), labels))

    return problem(loss, affine_model((4, 10, 10, 3)), classes("iris"), apply=apply)


@bug("GW102", r"averaged|bias", peers="check_grads gradcheck")
def bias_gradient_averaged() -> dict[str, Any]:
    """The backward pass averages the gradient of the biases over the batch instead of summing it.

    The loss divides by the batch already; whoever wrote the kernel divided once more, for the biases only.
    """
    return by_hand(averaged, (4, 12, 3))


@jax.custom_vjp
def half_error(outputs: Any, targets: Any) -> Any:
    return jnp.mean((outputs - targets) ** 2)


half_error.defvjp(
    lambda outputs, targets: (jnp.mean((outputs - targets) ** 2), (outputs, targets)),
    lambda kept, g: (g * (kept[0] - kept[1]) / kept[0].size, None),  # the 2 of the square is missing
)


@bug("GW102", r"half_error", peers="check_grads gradcheck")
def half_of_the_gradient_lost() -> dict[str, Any]:
    """The squared error's own backward pass misses the factor 2.

    The derivative was taken of half the squared error, as textbooks define it, and the loss is the whole.
    """

    def loss(model: Any, batch: Any) -> Any:
        return half_error(jax.vmap(model)(batch[0])[:, 0], batch[1])

    return problem(loss, Net((10, 12, 1)), numbers())


@jax.custom_jvp
def gated(x: Any) -> Any:
    return x * jax.nn.sigmoid(x)


@gated.defjvp
def _gated_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return gated(x), jax.nn.sigmoid(x) * t  # + x * sigmoid'(x) is missing


@bug("GW101 GW102", r"gated", peers="check_grads gradcheck")
def forgotten_term_in_a_derivative() -> dict[str, Any]:
    """x sigmoid(x) differentiated as if its second factor were a constant.

    The product rule was applied to one factor only; the network still learns, only worse.
    """
    return problem(cross_entropy, Net((13, 12, 3), gated), classes("wine"))


# ---- gradients that are cut, or no numbers


class Coded(eqx.Module):
    """An encoder, and a layer that reads its code."""

    encoder: Net
    read: eqx.nn.Linear

    def __init__(self) -> None:
        self.encoder = Net((13, 12, 6))
        self.read = eqx.nn.Linear(6, 3, key=jr.key(1))

    def __call__(self, x: Any) -> Any:
        return self.read(jax.lax.stop_gradient(jnp.tanh(self.encoder(x))))


@bug("GW103", r"encoder", peers="check_grads gradcheck overfit_batches")
def detached_encoder() -> dict[str, Any]:
    """A stopped gradient between encoder and classifier.

    Left over from an experiment with a frozen encoder; here the encoder is meant to learn, and never does.
    """
    return problem(cross_entropy, Coded(), classes("wine"))


@bug("GW103 GW105", r"\bround\b", peers="check_grads gradcheck")
def rounding_in_the_forward_pass() -> dict[str, Any]:
    """Activations are rounded to the grid of the target hardware during training.

    Quantisation was put into the forward pass without a derivative to pass through it.
    """
    return problem(cross_entropy, Net((4, 12, 3), lambda x: jnp.round(4 * jnp.tanh(x)) / 4), classes("iris"))


# Nothing is learned with a gradient that is not a number, here and in the next two.
@bug("GW104", r"sqrt|in distance", also="GW401", peers="check_grads gradcheck")
def root_of_nought() -> dict[str, Any]:
    """Distances between all pairs of a batch: on the diagonal the root of nought has no derivative.

    The loss itself is finite, and the diagonal is masked out, but nought times infinity is not a number.
    """
    parts = classes("iris")

    def distance(codes: Any) -> Any:
        return jnp.sqrt(jnp.sum((codes[:, None] - codes[None]) ** 2, axis=-1))

    def loss(model: Any, batch: Any) -> Any:
        inputs, labels = batch
        apart = distance(jax.vmap(model)(inputs))
        same = (labels[:, None] == labels[None]).astype(apart.dtype)
        off = 1 - jnp.eye(len(inputs), dtype=apart.dtype)
        return jnp.mean(off * (same * apart + (1 - same) * jnp.maximum(0.0, 1.0 - apart)))

    return problem(loss, Net((4, 12, 2)), parts)


@bug("GW104", r"\blog\b|in entropy", also="GW401", peers="check_grads gradcheck")
def logarithm_behind_where() -> dict[str, Any]:
    """`where(p > 0, p log p, 0)`: the value is right, the gradient of the branch not taken is not a number.

    An entropy penalty on a rectified, normalised code, guarded in the way everybody guards it at first.
    """

    def entropy(p: Any) -> Any:
        return -jnp.sum(jnp.where(p > 0, p * jnp.log(p), 0.0), axis=1)

    def loss(model: Any, batch: Any) -> Any:
        hidden = jax.nn.relu(jax.vmap(model.layers[0])(batch[0]))
        shares = hidden / (jnp.sum(hidden, axis=1, keepdims=True) + 1e-3)
        return cross_entropy(model, batch) + 0.01 * jnp.mean(entropy(shares))

    return problem(loss, Net((4, 12, 3), jax.nn.relu), classes("iris"))


@bug("GW104", r"\blog\b", also="GW401", peers="check_grads")
def logarithm_of_nought() -> dict[str, Any]:
    """Cross-entropy as the logarithm of probabilities that underflow to nought.

    Probabilities first, logarithm later, with inputs that nobody scaled: the loss is infinite from the first update.
    """
    (inputs, labels), (others, there) = classes("digits")

    def loss(model: Any, batch: Any) -> Any:
        shares = jax.nn.softmax(jax.vmap(model)(batch[0]))
        return -jnp.mean(jnp.log(jnp.take_along_axis(shares, batch[1][:, None], axis=1)))

    parts = ((3000 * inputs, labels), (3000 * others, there))
    return problem(loss, Net((64, 12, 10), jax.nn.relu), parts)


@bug("GW102 GW103 GW303 GW604", r"layers\.\d|float16", also="GW401", peers="check_grads")  # as above: no gradient
def underflow_in_half_precision() -> dict[str, Any]:
    """The forward pass runs in 16 bits without a scaled loss, and the gradients underflow.

    Mixed precision switched on for speed; the error is a mean over many small outputs, and its gradient below 6e-8.
    """
    parts = numbers()

    def loss(model: Any, batch: Any) -> Any:
        half = jax.tree.map(lambda leaf: leaf.astype(jnp.float16) if eqx.is_inexact_array(leaf) else leaf, model)
        outputs = jax.vmap(half)(jnp.asarray(batch[0], jnp.float16))[:, 0]
        errors = (outputs.astype(jnp.float32) - batch[1]) ** 2
        return 1e-7 * jnp.mean(errors)

    return problem(loss, Net((10, 12, 1)), parts)


@bug("GW107", r"loss|random", peers="check_grads")
def hidden_randomness() -> dict[str, Any]:
    """The loss jitters its inputs with NumPy's generator instead of the key.

    Augmentation moved from the input pipeline into the loss: compiled, the jitter is drawn once and stays for ever.
    """
    generator = np.random.default_rng()

    def loss(model: Any, batch: Any) -> Any:
        jittered = batch[0] + 0.1 * generator.normal(size=batch[0].shape).astype(np.float32)
        return cross_entropy(model, (jittered, batch[1]))

    return problem(loss, Net((4, 12, 3)), classes("iris"))


# ---- data


@bug("GW210", r"(?i)target|label|input|train", peers="overfit_batches")
def labels_shifted_in_the_file() -> dict[str, Any]:
    """Every row has the label of the row before it.

    Two files were joined by line, and one of them has a header.
    """
    (inputs, labels), (others, there) = classes("digits")
    return problem(
        cross_entropy, Net((64, 16, 10)), ((inputs, np.roll(labels, 1)), (others, np.roll(there, 1))), task="classes"
    )


@bug("GW210", r"(?i)target|label|input|train", peers="overfit_batches")
def inputs_shuffled_without_labels() -> dict[str, Any]:
    """The inputs were shuffled, their targets were not.

    `generator.shuffle(x)` works in place and returns nothing; the call for y got another permutation.
    """
    (inputs, labels), (others, there) = classes("wine")
    order = np.random.default_rng(11)
    return problem(
        cross_entropy, Net((13, 12, 3)), ((order.permutation(inputs), labels), (order.permutation(others), there))
    )


@bug("GW211", r"(?i)label|class|target|output", also="GW401")  # the loss of the last class cannot fall
def labels_from_one() -> dict[str, Any]:
    """Labels 1 .. K for outputs 0 .. K-1.

    The file counts from one; `one_hot` answers a label beyond the end with a row of noughts, and nothing fails.
    """
    (inputs, labels), (others, there) = classes("iris")

    def loss(model: Any, batch: Any) -> Any:
        logits = jax.vmap(model)(batch[0])
        return -jnp.mean(jnp.sum(jax.nn.one_hot(batch[1], 3) * jax.nn.log_softmax(logits), axis=1))

    return problem(loss, Net((4, 12, 3)), ((inputs, labels + 1), (others, there + 1)))


@bug("GW202", r"final_grade")
def target_among_the_inputs() -> dict[str, Any]:
    """A column that is known only after the fact: the target with a little noise.

    The table was exported after the outcome; one of its columns is the outcome in another unit.
    """
    (inputs, targets), (others, there) = numbers()
    generator = np.random.default_rng(12)

    def leaking(x: Any, y: Any) -> Any:
        column = 3.0 * y + 1.0 + 0.01 * generator.normal(size=y.shape)
        return np.concatenate([x[:, :5], column[:, None], x[:, 5:]], axis=1).astype(np.float32), y

    columns = (*DIABETES[:5], "final_grade", *DIABETES[5:])
    parts = leaking(inputs, targets), leaking(others, there)
    return problem(squared_error, Net((11, 12, 1)), parts, columns=columns)


@bug("GW202", r"cultivar_code")
def class_among_the_inputs() -> dict[str, Any]:
    """A column that codes the class: a row number of files that were sorted by class.

    The index of the data frame was saved as a column when the classes were still in order.
    """
    (inputs, labels), (others, there) = classes("wine")
    generator = np.random.default_rng(13)

    def coded(x: Any, y: Any) -> Any:
        place = ((y + generator.uniform(size=len(y))) - 1.5).astype(np.float32)
        return np.concatenate([x, place[:, None]], axis=1), y

    columns = (*(f"measure_{place}" for place in range(13)), "cultivar_code")
    return problem(cross_entropy, Net((14, 12, 3)), (coded(inputs, labels), coded(others, there)), columns=columns)


@bug("GW201", r"(?i)test", peers="skore")
def rows_of_test_in_train() -> dict[str, Any]:
    """A third of the test rows stand in the training set too.

    Rare examples were repeated to balance the classes before the split, not after it.
    """
    (inputs, labels), (others, there) = classes("digits")
    third = len(there) // 3
    train = (np.concatenate([inputs, others[:third]]), np.concatenate([labels, there[:third]]))
    return problem(cross_entropy, Net((64, 16, 10)), (train, (others, there)))


# Rows that are no longer equal, only nearest neighbours beyond doubt, may be told as groups that the split cut apart.
@bug("GW201 GW203", r"(?i)test", peers="skore")
def rounded_rows_of_test_in_train() -> dict[str, Any]:
    """Test rows stand in the training set, rounded to two digits.

    The two parts were written to text files with different precision, from tables that overlap.
    """
    (inputs, labels), (others, there) = classes("wine")
    half = len(there) // 2
    train = (np.concatenate([inputs, others[:half].round(2)]), np.concatenate([labels, there[:half]]))
    return problem(cross_entropy, Net((13, 12, 3)), (train, (others, there)))


@bug("GW209", r"(?i)petal_length|row 77|column 2")
def not_a_number_in_one_row() -> dict[str, Any]:
    """One value of the training set is missing, and not in the batch that was looked at.

    An empty cell of the file became NaN; the first epoch meets it after some updates, and all weights are lost.
    """
    (inputs, labels), test = classes("iris")
    inputs = inputs.copy()
    inputs[77, 2] = np.nan
    return problem(cross_entropy, Net((4, 12, 3)), ((inputs, labels), test), columns=IRIS)


@bug("GW208", r"(?i)batch|order|row|sorted", peers="skore")
def no_shuffling_of_sorted_data() -> dict[str, Any]:
    """Batches of one class after another.

    The file is sorted by class, as many are, and the loader was made without shuffling.
    """
    (inputs, labels), test = classes("digits")
    order = np.argsort(labels, kind="stable")
    train = (inputs[order], labels[order])
    batches = [first((train[0][at:], train[1][at:]), 16) for at in range(0, len(order) - 16, 16)]
    given = problem(cross_entropy, Net((64, 16, 10)), (train, test), batches=batches)
    return {**given, "batch": batches[0]}


@bug("GW204", r"(?i)income|column|input")
def inputs_not_scaled() -> dict[str, Any]:
    """One column is a million times as wide as the others.

    An income in cents among ages and shares; nobody scaled it.
    """
    (inputs, targets), (others, there) = numbers()
    units = np.ones(10, np.float32)
    units[8] = 1e6
    columns = (*DIABETES[:8], "income", "s6")
    parts = ((inputs * units, targets), (others * units, there))
    # A rate at which the network survives its inputs, as one that was lowered until the loss was finite.
    return problem(squared_error, Net((10, 12, 1), jax.nn.relu), parts, columns=columns, optimiser=optax.adam(1e-4))


@bug("GW212", r"(?i)class|label|\b2\b")
def class_missing_in_train() -> dict[str, Any]:
    """The training part has no example of the third class.

    The split was made by rows of a file in which the classes follow one another.
    """
    inputs, labels = (np.concatenate(both) for both in zip(*classes("iris"), strict=True))
    rest = np.flatnonzero(labels == 2)
    others = np.flatnonzero(labels != 2)
    train, test = others[:80], np.concatenate([others[80:], rest])
    return problem(cross_entropy, Net((4, 12, 3)), ((inputs[train], labels[train]), (inputs[test], labels[test])))


@bug("GW213", r"(?i)test")
def unscaled_test_part() -> dict[str, Any]:
    """The training part is scaled, the test part is not.

    The scaler was fitted and applied in the cell that makes the training set; the test set came later.
    """
    train, _ = classes("wine")
    inputs, labels = raw("wine")
    count = len(train[1])
    return problem(cross_entropy, Net((13, 12, 3)), (train, (inputs[count:], labels[count:].astype(np.int32))))


# ---- wiring


@bug("GW303", r"layers\.0", peers="overfit_batches")
def frozen_layer() -> dict[str, Any]:
    """The optimiser sets the updates of the first layer to nought.

    The list of what to train was written for a fine-tuning job and matches only the layers from the second on.
    """
    model = Net((4, 12, 12, 3))

    def kinds(parameters: Any) -> Any:
        return jax.tree_util.tree_map_with_path(
            lambda path, _: "rest" if "layers[0]" in jax.tree_util.keystr(path) else "learn", parameters
        )

    optimiser = optax.multi_transform({"learn": optax.adam(1e-2), "rest": optax.set_to_zero()}, kinds)
    return problem(cross_entropy, model, classes("iris"), optimiser=optimiser)


class Skipping(eqx.Module):
    """A network with a projection for its skip that is built and never called."""

    one: eqx.nn.Linear
    skip: eqx.nn.Linear
    two: eqx.nn.Linear

    def __init__(self) -> None:
        keys = jr.split(jr.key(0), 3)
        self.one = eqx.nn.Linear(13, 12, key=keys[0])
        self.skip = eqx.nn.Linear(13, 12, key=keys[1])
        self.two = eqx.nn.Linear(12, 3, key=keys[2])

    def __call__(self, x: Any) -> Any:
        hidden = jnp.tanh(self.one(x))
        return self.two(hidden)


@bug("GW302", r"skip")
def layer_never_called() -> dict[str, Any]:
    """A layer is built and never called.

    The skip was written in the constructor and forgotten in the forward pass.
    """
    return problem(cross_entropy, Skipping(), classes("wine"))


class Sliced(eqx.Module):
    """Separates the last column, meant to be a weight, where there is none."""

    net: Net

    def __call__(self, x: Any) -> Any:
        return self.net(x[:-1])


@bug("GW304", r"petal_width|column 3|input 3")
def last_column_dropped() -> dict[str, Any]:
    """The last input column is sliced off.

    The file used to have the target in its last column; the slice that took it away is still there.
    """
    return problem(cross_entropy, Sliced(Net((3, 12, 3))), classes("iris"), columns=IRIS)


class Deaf(eqx.Module):
    """A recurrent network that steps on its own state and forgets to take the input in."""

    recurrent: Recurrent

    def __call__(self, x: Any, mask: Any) -> Any:
        def step(state: Any, seen: Any) -> Any:
            _, present = seen
            new = jnp.tanh(self.recurrent.take(state[:3]) + self.recurrent.keep(state))  # state[:3] for now
            return jnp.where(present > 0, new, state), None

        state, _ = jax.lax.scan(step, jnp.zeros(8), (x, mask))
        return self.recurrent.read(state)


@bug("GW304", r"(?i)input|\bx\b", also="GW401", peers="overfit_batches")  # outputs blind to inputs cannot be learned
def inputs_ignored() -> dict[str, Any]:
    """The recurrent step reads its own state where it should read the input.

    Two variables of the same width were confused inside the scan.
    """
    return masked_problem(sequence_loss, Deaf(Recurrent(3, 2)))


def whitened_model(seed: int = 0) -> dict[str, Any]:
    one, two = jr.split(jr.key(seed))
    return {
        "first": jr.normal(one, (13, 12)) / 13**0.5,
        "scale": jnp.ones(12),
        "second": jr.normal(two, (12, 3)) / 12**0.5,
        "bias": jnp.zeros(3),
    }


def whitened(model: Any, inputs: Any) -> Any:
    hidden = inputs @ model["first"]
    hidden = (hidden - hidden.mean(axis=0)) / (hidden.std(axis=0) + 1e-3)
    hidden = jax.nn.relu(hidden * model["scale"])
    return hidden @ model["second"] + model["bias"]


def whitened_loss(model: Any, batch: Any) -> Any:
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(whitened(model, batch[0]), batch[1]))


@bug("GW305", r"(?i)evaluat|batch|example|bugs\.py:\d+")
def batch_statistics_at_evaluation() -> dict[str, Any]:
    """Batch normalisation with the statistics of the very batch that is judged.

    The running statistics were never written; evaluation calls the training forward pass, so a prediction depends on
    which other rows are predicted with it.
    """

    def evaluate(model: Any, inputs: Any) -> Any:
        return whitened(model, inputs)

    return problem(whitened_loss, whitened_model(), classes("wine"), apply=whitened, evaluate=evaluate)


@bug("GW305", r"(?i)batch|example|mean|bugs\.py:\d+")
def mean_over_the_wrong_axis() -> dict[str, Any]:
    """Layer normalisation that takes mean and deviation over the batch.

    Written for one example (axis 0 is the units), then called on a batch (axis 0 is the examples).
    """

    def normed(x: Any) -> Any:
        return (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-3)

    def apply(model: Any, inputs: Any) -> Any:
        hidden = jnp.tanh(normed(inputs @ model[0]["weight"] + model[0]["bias"]))
        return hidden @ model[1]["weight"] + model[1]["bias"]

    def loss(model: Any, inputs: Any, labels: Any) -> Any:
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(apply(model, inputs), labels))

    return problem(loss, affine_model((13, 12, 3)), classes("wine"), apply=apply)


@bug("GW305 GW311", r"(?i)softmax|batch|example|bugs\.py:\d+")
def softmax_over_the_batch() -> dict[str, Any]:
    """The softmax is taken over the examples instead of the classes.

    `axis=0` was right inside the function for one example and stayed when the function was given batches.
    """

    def apply(model: Any, inputs: Any) -> Any:
        return jax.nn.log_softmax(jax.vmap(model)(inputs), axis=0)

    def loss(model: Any, batch: Any) -> Any:
        return -jnp.mean(jnp.take_along_axis(apply(model, batch[0]), batch[1][:, None], axis=1))

    return problem(loss, Net((4, 12, 3)), classes("iris"), apply=apply)


class Mixed(eqx.Module):
    """The attention of `sound.Attention`, on a whole batch, with its two first axes confused."""

    inner: Attention

    def __call__(self, words: Any) -> Any:
        x = jax.vmap(jax.vmap(self.inner.words))(words) + self.inner.places
        mixed = jax.vmap(lambda one: self.inner.attention(one, one, one), in_axes=1, out_axes=1)(x)
        return jax.vmap(self.inner.read)((x + mixed).mean(axis=1))


@bug("GW305", r"(?i)batch|example|attention|bugs\.py:\d+")
def attention_over_the_batch() -> dict[str, Any]:
    """Attention between the examples of a batch instead of the words of a sentence.

    The library wants (time, batch, width), the data are (batch, time, width); every shape fits.
    """

    def apply(model: Any, words: Any) -> Any:
        return model(words)

    return problem(batched_cross_entropy, Mixed(Attention()), word_order(), apply=apply)


@bug("GW305 GW311", r"(?i)batch|example|broadcast|shape|bugs\.py:\d+", also="GW401", peers="overfit_batches")
def column_against_row() -> dict[str, Any]:
    """Outputs of shape (B, 1) minus targets of shape (B,): a B x B table of errors.

    The last axis was not squeezed. The best that such a loss allows is the mean target for all (hence GW401).
    """

    def loss(model: Any, batch: Any) -> Any:
        return jnp.mean((jax.vmap(model)(batch[0]) - batch[1]) ** 2)

    return problem(loss, Net((10, 12, 1)), numbers())


@bug("GW311", r"(?i)target|label|example|bugs\.py:\d+")
def labels_shifted_in_the_loss() -> dict[str, Any]:
    """The loss compares each output with the label of the next example.

    A language model's shift by one, copied into a problem whose first axis is the examples.
    """

    def loss(model: Any, batch: Any) -> Any:
        logits = jax.vmap(model)(batch[0])[:-1]
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch[1][1:]))

    return problem(loss, Net((4, 16, 3)), classes("iris"))


@bug("GW306 GW307", r"(?i)evaluat|dropout|random|key")
def dropout_left_on_at_evaluation() -> dict[str, Any]:
    """Dropout is on when the network is judged (Equinox).

    The evaluation was copied from the training loop, key and all.
    """
    keys = (jr.key(seed) for seed in itertools.count())

    def evaluate(model: Any, inputs: Any) -> Any:
        return jax.vmap(lambda x, k: model(x, key=k))(inputs, jr.split(next(keys), len(inputs)))

    return problem(dropped_loss, Dropped(64, 10), classes("digits"), evaluate=evaluate)


@bug("GW306 GW307", r"(?i)evaluat|dropout|random|key")
def eval_not_called() -> dict[str, Any]:
    """Dropout is on when the network is judged (Flax NNX).

    Nobody called `model.eval()`.
    """

    def evaluate(model: Any, inputs: Any) -> Any:
        return model(inputs)

    return problem(batched_cross_entropy, dropped_net(), classes("iris"), evaluate=evaluate)


@bug("GW308", r"(?i)dropout|noise")
def dropout_off_in_training() -> dict[str, Any]:
    """Dropout is switched off while training.

    The model was put into inference mode for a first look at its outputs, and stayed in it.
    """

    def loss(model: Any, batch: Any, key: Any) -> Any:
        return dropped_loss(eqx.nn.inference_mode(model), batch, key)

    return problem(loss, Dropped(64, 10), classes("digits"))


@bug("GW307", r"(?i)evaluat")
def evaluation_with_another_scale() -> dict[str, Any]:
    """Evaluation divides pixels by 255, training by 16.

    The service that answers was written for ordinary images.
    """
    parts = classes("digits")
    raws = tuple((16 * inputs, labels) for inputs, labels in parts)

    def loss(model: Any, batch: Any) -> Any:
        return cross_entropy(model, (batch[0] / 16, batch[1]))

    return problem(
        loss,
        Net((64, 16, 10)),
        raws,
        apply=lambda model, inputs: jax.vmap(model)(inputs / 16),
        evaluate=lambda model, inputs: jax.vmap(model)(inputs / 255),
    )


@bug("GW307", r"(?i)evaluat")
def evaluation_with_transposed_weights() -> dict[str, Any]:
    """Evaluation uses the transpose of a square weight matrix.

    The weights were exported to a runtime with the other convention, and the hidden layers are square.
    """

    def forward(model: Any, inputs: Any, turn: Callable[[Any], Any]) -> Any:
        hidden = jnp.tanh(inputs @ model[0]["weight"] + model[0]["bias"])
        hidden = jnp.tanh(hidden @ turn(model[1]["weight"]) + model[1]["bias"])
        return hidden @ model[2]["weight"] + model[2]["bias"]

    def apply(model: Any, inputs: Any) -> Any:
        return forward(model, inputs, lambda weight: weight)

    def evaluate(model: Any, inputs: Any) -> Any:
        return forward(model, inputs, jnp.transpose)

    def loss(model: Any, batch: Any) -> Any:
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(apply(model, batch[0]), batch[1]))

    return problem(loss, affine_model((4, 10, 10, 3)), classes("iris"), apply=apply, evaluate=evaluate)


class Pooled(eqx.Module):
    """A layer on every time step and the mean over all of them, padding included."""

    step: eqx.nn.Linear
    read: eqx.nn.Linear

    def __init__(self) -> None:
        one, two = jr.split(jr.key(0))
        self.step = eqx.nn.Linear(3, 8, key=one)
        self.read = eqx.nn.Linear(8, 2, key=two)

    def __call__(self, x: Any, mask: Any) -> Any:
        hidden = jnp.tanh(jax.vmap(self.step)(x))
        return self.read(hidden.sum(axis=0) / mask.sum())


@bug("GW301", r"(?i)padding|mask|\bx\b")
def padding_read() -> dict[str, Any]:
    """The mean over time counts the padding.

    The divisor knows of the mask, the sum does not: the bias of the first layer makes padding count.
    """
    return masked_problem(sequence_loss, Pooled())


@bug("GW310", r"(?i)weights")
def weights_ignored() -> dict[str, Any]:
    """The weights of the examples are in the batch, and the loss does not look at them.

    They were added to the loader; the loss takes a plain mean as before.
    """
    (inputs, labels), _ = classes("iris")
    weights = np.random.default_rng(8).uniform(0.2, 2.0, len(labels)).astype(np.float32)
    data = {"x": inputs, "y": labels, "weights": weights}

    def loss(model: Any, batch: Any) -> Any:
        return cross_entropy(model, (batch["x"], batch["y"]))

    return {"loss": loss, "model": Net((4, 12, 3)), "batch": first(data), "train": data} | {
        "optimiser": optax.adam(1e-2)
    }


@bug("GW309", r"(?i)sum|bugs\.py:\d+|loss")
def summed_instead_of_averaged() -> dict[str, Any]:
    """The loss is summed over the batch.

    `sum` for `mean`: the rate that was right at one batch size is wrong at another.
    """

    def loss(model: Any, batch: Any) -> Any:
        logits = jax.vmap(model)(batch[0])
        return jnp.sum(optax.softmax_cross_entropy_with_integer_labels(logits, batch[1]))

    return problem(loss, Net((13, 12, 3)), classes("wine"))


# ---- inside loops


@jax.custom_jvp
def squash(x: Any) -> Any:
    return x / (1.0 + jnp.abs(x))


@squash.defjvp
def _squash_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return squash(x), t / (1.0 + jnp.abs(x))  # the square is missing


class Squashed(eqx.Module):
    """A recurrent network with a squashing function of its own."""

    recurrent: Recurrent

    def __call__(self, x: Any, mask: Any) -> Any:
        def step(state: Any, seen: Any) -> Any:
            now, present = seen
            new = squash(self.recurrent.take(now) + self.recurrent.keep(state))
            return jnp.where(present > 0, new, state), None

        state, _ = jax.lax.scan(step, jnp.zeros(8), (x, mask))
        return self.recurrent.read(state)


@bug("GW102", r"squash", peers="check_grads")
def wrong_derivative_inside_a_scan() -> dict[str, Any]:
    """The state of a recurrent network is squashed by a function whose own derivative lacks a square.

    The derivative of x / (1 + |x|), done in the head.
    """
    return masked_problem(sequence_loss, Squashed(Recurrent(3, 2)))


# A layer whose units are all dead neither moves, nor does what stands below it, nor can anything be learned.
@bug("GW602", r"hidden\[2\]", also="GW303 GW401", peers="overfit_batches")
def dead_layer_in_a_scanned_stack() -> dict[str, Any]:
    """One of four layers that a scan goes through is off for all examples.

    A checkpoint was patched by hand, and the biases of one layer came out of the wrong file.
    """
    net = Stacked(jax.nn.relu)
    bias = net.hidden["bias"].at[2].set(-20.0)
    return problem(cross_entropy, eqx.tree_at(lambda n: n.hidden["bias"], net, bias), classes("wine"))


@bug("GW601", r"keep\[\d+\]")
def saturated_state_of_a_recurrent_network() -> dict[str, Any]:
    """The weights from the state to itself are so large that the state is always at its ends.

    They were drawn with a deviation of 30 instead of one over the root of the number of units.
    """
    net = reweighted(Recurrent(3, 2), lambda leaf: 30.0 * jr.normal(jr.key(4), leaf.shape), lambda name: "keep" in name)
    return masked_problem(sequence_loss, net)


# ---- beginnings and rates


# Without a gradient on the hidden layer nothing but the class frequencies can be learned.
@bug("GW603", r"layers\.0", also="GW401", peers="overfit_batches")
def zero_initial_weights() -> dict[str, Any]:
    """All weights and biases start at nought.

    `zeros` was used for everything, as is right for biases: no hidden unit ever differs from another.
    """
    return problem(cross_entropy, reweighted(Net((4, 12, 3)), jnp.zeros_like), classes("iris"))


# Twelve equal units are one unit, which is too few to learn a handful of examples by heart.
@bug("GW603", r"layers\.0", also="GW401", peers="overfit_batches")
def equal_initial_weights() -> dict[str, Any]:
    """All weights start at 0.1, all biases at nought.

    A constant initialiser, to make a run reproducible: all hidden units are copies of one.
    """
    net = reweighted(Net((10, 12, 1)), lambda leaf: jnp.full_like(leaf, 0.1 if leaf.ndim == 2 else 0.0))
    return problem(squared_error, net, numbers())


# A layer whose units are all dead neither moves nor lets anything be learned.
@bug("GW602", r"layers\.0", also="GW303 GW401", peers="overfit_batches")
def dead_rectifiers() -> dict[str, Any]:
    """The biases of a rectifier layer start so low that no unit is ever on.

    An initial bias of -20, copied from an output layer for rare events.
    """
    net = reweighted(
        Net((4, 12, 3), jax.nn.relu), lambda leaf: leaf - 20.0, lambda name: "layers[0]" in name and "bias" in name
    )
    return problem(cross_entropy, net, classes("iris"))


@bug("GW601", r"layers\.0|sigmoid|logistic")
def saturated_sigmoids() -> dict[str, Any]:
    """Sigmoid units with huge initial weights.

    Weights drawn with a deviation of 30, where it should have been divided by the root of the number of inputs.
    """
    net = reweighted(
        Net((13, 12, 3), jax.nn.sigmoid),
        lambda leaf: 30.0 * jr.normal(jr.key(4), leaf.shape),
        lambda name: "layers[0]" in name and "weight" in name,
    )
    return problem(cross_entropy, net, classes("wine"))


@bug("GW604", r"layers\.\d")
def vanishing_gradients() -> dict[str, Any]:
    """Eight sigmoid layers with small weights: hardly any gradient arrives below.

    The default of years ago: a sigmoid everywhere, weights of 0.01 times a normal deviate.
    """
    net = reweighted(
        Net((13, *[12] * 8, 3), jax.nn.sigmoid),
        lambda leaf: 0.2 * jr.normal(jr.key(leaf.size), leaf.shape),
        lambda name: "weight" in name,
    )
    return problem(cross_entropy, net, classes("wine"))


@bug("GW605", r"layers\.\d")
def exploding_gradients() -> dict[str, Any]:
    """Eight rectifier layers with weights four times too large.

    The gain was applied twice: once by the initialiser and once by hand.
    """
    net = reweighted(
        Net((13, *[12] * 8, 3), jax.nn.relu),
        lambda leaf: 4.0 * jr.normal(jr.key(leaf.size), leaf.shape) * (2 / leaf.shape[1]) ** 0.5,
        lambda name: "weight" in name,
    )
    return problem(cross_entropy, net, classes("wine"), optimiser=optax.adam(1e-3))


@bug("GW501", r"(?i)rate|optimiser|loss|layers", peers="overfit_batches")
def rate_a_thousand_times_too_large() -> dict[str, Any]:
    """A learning rate of 200 where 0.2 was meant.

    A rate that was tuned for a loss divided by a thousand.
    """
    return problem(squared_error, Net((10, 12, 1)), numbers(), optimiser=optax.sgd(200.0))


@bug("GW502", r"(?i)rate|optimiser|loss|layers", peers="overfit_batches")
def rate_a_thousand_times_too_small() -> dict[str, Any]:
    """A learning rate of 0.0001 where 0.1 was meant.

    Adam's usual rate, less a little, given to plain gradient descent.
    """
    return problem(cross_entropy, Net((13, 12, 3)), classes("wine"), optimiser=optax.sgd(1e-4))


@bug("GW404", r"(?i)guess|chance|initial outputs")
def output_weights_too_large() -> dict[str, Any]:
    """The output layer starts with weights of 20: confident and wrong.

    Its initialiser was given a variance where it wanted a deviation.
    """
    net = reweighted(
        Net((64, 16, 10), jax.nn.relu),
        lambda leaf: 20.0 * jr.normal(jr.key(6), leaf.shape),
        lambda name: "layers[1]" in name and "weight" in name,
    )
    return problem(cross_entropy, net, classes("digits"))


# ---- choices


@bug("GW702", r"(?i)softmax|bugs\.py:\d+|output|loss", peers="overfit_batches")
def softmax_twice() -> dict[str, Any]:
    """The network ends in a softmax and so does the loss.

    The loss wants logits; the network was written to give probabilities. It learns, slowly, and never gets below 0.55.
    """

    def apply(model: Any, inputs: Any) -> Any:
        return jax.nn.softmax(jax.vmap(model)(inputs))

    def loss(model: Any, batch: Any) -> Any:
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(apply(model, batch[0]), batch[1]))

    return problem(loss, Net((4, 12, 3)), classes("iris"), apply=apply)


@bug("GW702", r"(?i)sigmoid|logistic|bugs\.py:\d+|output|loss", peers="overfit_batches")
def sigmoid_twice() -> dict[str, Any]:
    """A sigmoid on the output, and another one inside the loss.

    `sigmoid_binary_cross_entropy` takes logits, as its name does not say.
    """
    (inputs, labels), (others, there) = classes("breast_cancer")

    def apply(model: Any, inputs: Any) -> Any:
        return jax.nn.sigmoid(jax.vmap(model)(inputs)[:, 0])

    def loss(model: Any, batch: Any) -> Any:
        return jnp.mean(optax.sigmoid_binary_cross_entropy(apply(model, batch[0]), batch[1]))

    parts = ((inputs, labels), (others, there))
    return problem(loss, Net((30, 12, 1)), parts, apply=apply)


@bug("GW701 GW709", r"(?i)relu|max|rectif|output|bugs\.py:\d+", also="GW401")  # negative targets are out of reach
def rectifier_on_regression_outputs() -> dict[str, Any]:
    """The outputs of a regression pass through a rectifier; half of the targets are negative.

    The non-linearity was put into the loop over the layers, the last one included.
    """

    def apply(model: Any, inputs: Any) -> Any:
        return jax.nn.relu(jax.vmap(model)(inputs))[:, 0]

    def loss(model: Any, batch: Any) -> Any:
        return jnp.mean((apply(model, batch[0]) - batch[1]) ** 2)

    return problem(loss, Net((10, 12, 1)), numbers(), apply=apply)


@bug("GW701 GW709", r"(?i)sigmoid|logistic|output|target|bugs\.py:\d+", also="GW401")  # targets out of reach
def sigmoid_on_regression_outputs() -> dict[str, Any]:
    """Outputs between 0 and 1 for targets between 25 and 346.

    The head of a classifier was kept when the problem became a regression.
    """
    inputs, targets = raw("diabetes")
    parts = parted((inputs / inputs.std(axis=0)).astype(np.float32), targets.astype(np.float32))

    def apply(model: Any, inputs: Any) -> Any:
        return jax.nn.sigmoid(jax.vmap(model)(inputs))[:, 0]

    def loss(model: Any, batch: Any) -> Any:
        return jnp.mean((apply(model, batch[0]) - batch[1]) ** 2)

    return problem(loss, Net((10, 12, 1)), parts, apply=apply)


# The one output is always 1, whatever the parameters and the inputs: nothing is used and nothing can be learned.
@bug("GW701 GW702 GW709 GW211", r"(?i)softmax|one output|single|output|bugs\.py:\d+", also="GW401 GW103")
def softmax_over_one_output() -> dict[str, Any]:
    """A softmax over a single output, which is 1 whatever the network says.

    Two classes, one output, and the head of the network for many classes.
    """
    (inputs, labels), (others, there) = classes("breast_cancer")

    def apply(model: Any, inputs: Any) -> Any:
        return jax.nn.softmax(jax.vmap(model)(inputs))[:, 0]

    def loss(model: Any, batch: Any) -> Any:
        return jnp.mean((apply(model, batch[0]) - batch[1]) ** 2)

    return problem(loss, Net((30, 12, 1)), ((inputs, labels), (others, there)), apply=apply)


@bug("GW709", r"(?i)class|label|target|squared|loss")
def class_numbers_regressed() -> dict[str, Any]:
    """Ten classes learned as the numbers 0 to 9 with a squared error.

    One output and a squared error, as in the regression before; the classes have no order.
    """

    def loss(model: Any, batch: Any) -> Any:
        return jnp.mean((jax.vmap(model)(batch[0])[:, 0] - batch[1]) ** 2)

    return problem(loss, Net((64, 16, 1)), classes("digits"))


@bug("GW705", r"(?i)penalty|regularis|l2|weight|bugs\.py:\d+", also="GW401")  # the penalty forbids learning
def penalty_a_thousand_times_too_strong() -> dict[str, Any]:
    """An L2 penalty of 1000 where one of 0.001 was meant.

    The coefficient was divided where it should have been multiplied.
    """

    def loss(model: Any, batch: Any) -> Any:
        return cross_entropy(model, batch) + 1e3 * sum(jnp.sum(layer.weight**2) for layer in model.layers)

    return problem(loss, Net((13, 12, 3)), classes("wine"))


@bug(
    "GW103 GW105", r"(?i)argmax|round|eq|layers|bugs\.py:\d+|loss", also="GW401", peers="check_grads gradcheck"
)  # no slope
def error_rate_as_the_loss() -> dict[str, Any]:
    """The loss is the share of wrong answers: flat everywhere, with steps.

    What is reported was minimised. It can be computed and differentiated, and every gradient is nought.
    """

    def loss(model: Any, batch: Any) -> Any:
        scores = jax.vmap(model)(batch[0])
        return jnp.mean((jnp.argmax(scores, axis=1) != batch[1]).astype(scores.dtype))

    return problem(loss, Net((4, 12, 3)), classes("iris"))


@bug("GW401 GW405 GW404 GW709", r"(?i)loss|output|target|label|chance|bugs\.py:\d+", peers="overfit_batches")
def likelihood_without_its_minus() -> dict[str, Any]:
    """The mean log-likelihood is minimised: the minus sign is missing.

    The loss falls beautifully, without a bound, and every answer becomes wrong.
    """

    def loss(model: Any, batch: Any) -> Any:
        return -cross_entropy(model, batch)

    return problem(loss, Net((4, 12, 3)), classes("iris"))
