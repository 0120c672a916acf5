"""The gradient check from end to end: planted bugs are found and pinned, sound twins raise nothing."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gradwise.checking.gradient.gradient import GradientMeasured, find_gradient, measure_gradient
from gradwise.checking.gradient.parameter_gradients import Leaf
from gradwise.checking.gradient.repeated_evaluation import LossEvaluation
from gradwise.checking.gradient.wrong_derivatives import Culprit
from gradwise.checking.subject import Subject

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
Y = np.arange(12) % 3


def measured(loss, model, batch=(X, Y), **options):
    return measure_gradient(Subject.of(loss, model, batch, **options), key=KEY)


def found(*arguments, **options):
    return find_gradient(measured(*arguments, **options))


def plain(seed=0):
    keys = jax.random.split(jax.random.key(seed), 3)
    sizes = {"hidden": (4, 4), "square": (4, 4), "output": (4, 3)}
    weights = {n: jax.random.normal(k, s) * 0.6 for (n, s), k in zip(sizes.items(), keys, strict=True)}
    return {name: {"weight": weight, "bias": jnp.zeros(weight.shape[1])} for name, weight in weights.items()}


@jax.custom_vjp
def product(x, weight):
    return x @ weight


product.defvjp(lambda x, w: (x @ w, (x, w)), lambda kept, g: (g @ kept[1], kept[0].T @ g))  # not transposed


@jax.custom_vjp
def weighted(outputs, labels, weights):
    return jnp.mean(weights * optax.softmax_cross_entropy_with_integer_labels(outputs, labels))


def _unweighted(kept, g):
    outputs, labels, weights = kept
    slope = jax.nn.softmax(outputs) - jax.nn.one_hot(labels, outputs.shape[1])
    return g * slope / len(labels), None, jnp.zeros_like(weights)


weighted.defvjp(lambda o, y, w: (weighted(o, y, w), (o, y, w)), _unweighted)


@jax.custom_jvp
def right(x):
    return jnp.tanh(x)


right.defjvp(lambda p, t: (jnp.tanh(p[0]), (1 - jnp.tanh(p[0]) ** 2) * t[0]))


@jax.custom_jvp
def halved(x):
    return jnp.tanh(x)


halved.defjvp(lambda p, t: (jnp.tanh(p[0]), 0.5 * (1 - jnp.tanh(p[0]) ** 2) * t[0]))


def test_a_transposed_matrix_in_a_backward_pass_is_pinned():
    def loss(model, x, y):
        hidden = jnp.tanh(x @ model["hidden"]["weight"] + model["hidden"]["bias"])
        hidden = jnp.tanh(product(hidden, model["square"]["weight"]) + model["square"]["bias"])
        outputs = hidden @ model["output"]["weight"] + model["output"]["bias"]
        return optax.softmax_cross_entropy_with_integer_labels(outputs, y).mean()

    seen = measured(loss, plain())
    (finding,) = find_gradient(seen)
    assert (finding.code, finding.level) == ("GW102", "error")
    assert finding.where.startswith("hidden.weight; square, product, test_gradient.py:")
    wrong = {leaf.name for leaf in seen.leaves if np.any(leaf.wrong)}
    assert wrong == {"hidden.bias", "hidden.weight"}  # what lies below; the square matrix itself is right
    below = [site for site in seen.sites if site.wrong]
    assert below
    assert {site.layer for site in below} <= {"hidden", ""}
    assert seen.culprits[0].title == "product"
    assert {one.name for one in seen.evidence().parameters if one.wrong} == wrong


def test_forgotten_weights_of_examples_are_pinned_to_the_loss():
    weights = np.linspace(0.1, 2, 12).astype(np.float32)

    def loss(model, batch):
        return weighted(batch["x"] @ model["weight"] + model["bias"], batch["y"], batch["w"])

    (finding,) = found(loss, plain()["output"], {"x": X, "y": Y, "w": weights})
    assert (finding.code, finding.level) == ("GW102", "error")
    assert "weighted, test_gradient.py:" in finding.where


def test_a_wrong_derivative_that_the_batch_hides_is_found():
    def loss(model, x, y):  # the outputs' weights are 0, so no gradient comes down
        hidden = halved(x @ model["hidden"]["weight"])
        return optax.softmax_cross_entropy_with_integer_labels(hidden @ model["output"]["weight"], y).mean()

    model = {"hidden": plain()["hidden"], "output": {"weight": jnp.zeros((4, 3))}}
    (finding,) = found(loss, model)
    assert (finding.code, finding.level) == ("GW102", "error")
    assert "half of what it should be" in finding.what
    assert "halved, test_gradient.py:" in finding.where


class Network(eqx.Module):
    first: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    drop: eqx.nn.Dropout
    last: eqx.nn.Linear

    def __init__(self):
        keys = jax.random.split(jax.random.key(4))
        self.first, self.last = eqx.nn.Linear(4, 5, key=keys[0]), eqx.nn.Linear(5, 3, key=keys[1])
        self.norm, self.drop = eqx.nn.LayerNorm(5), eqx.nn.Dropout(0.3)

    def __call__(self, x, key):
        return self.last(self.drop(jax.nn.relu(right(self.norm(self.first(x)))), key=key))


@pytest.mark.slow
def test_equinox_with_norm_dropout_rectifiers_and_a_right_derivative_is_sound():
    def loss(model, batch, key):
        outputs = jax.vmap(model)(batch[0], jax.random.split(key, len(batch[0])))
        return optax.softmax_cross_entropy_with_integer_labels(outputs, batch[1]).mean()

    seen = measured(loss, Network())
    assert find_gradient(seen) == ()
    assert max(leaf.worst for leaf in seen.leaves) < 1e-5
    assert len(seen.sites) >= 10
    best = int(np.argmin(seen.central))
    assert 1e-7 <= seen.epsilons[best] <= 1e-3
    assert seen.central[best] < 1e-8
    assert seen.central[0] > 100 * seen.central[best]
    assert seen.central[-1] > 100 * seen.central[best]


def test_flax_nnx_with_a_rectifier_at_nought_is_sound():
    nnx = pytest.importorskip("flax.nnx")

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(4, 5, rngs=rngs)
            self.last = nnx.Linear(5, 3, rngs=rngs)

        def __call__(self, x):
            return self.last(nnx.relu(self.first(x)))

    def loss(model, batch):
        return optax.softmax_cross_entropy_with_integer_labels(model(batch[0]), batch[1]).mean()

    inputs = X.copy()
    inputs[3:6] = 0.0  # and the biases start at 0: exactly on the kink
    seen = measured(loss, Net(nnx.Rngs(0)), (inputs, Y))
    assert find_gradient(seen) == ()
    assert {leaf.name for leaf in seen.leaves} >= {"first.kernel", "last.bias"}


def test_sixteen_bits_are_said_to_be_coarse_not_wrong():
    def loss(model, x, y):
        half = lambda a: jnp.asarray(a, jnp.bfloat16)  # noqa: E731
        hidden = jax.nn.gelu(half(x) @ half(model["hidden"]["weight"]))
        outputs = (hidden @ half(model["output"]["weight"])).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(outputs, y).mean()

    (finding,) = found(loss, {name: plain()[name] for name in ("hidden", "output")})
    assert (finding.code, finding.level) == ("GW106", "note")
    assert "bfloat16" in finding.what


# --- numbers in, findings out

FINE = LossEvaluation(0.7, 0.7)


def leaf(name, analytic, numeric, **more):
    a, n = np.asarray(analytic, float), np.asarray(numeric, float)
    error = np.abs(a - n) / np.maximum(np.abs(a) + np.abs(n), 1e-12)
    return Leaf(name, len(a), np.arange(len(a)), a, n, error, np.where(error > 1e-3, 1, 0), **more)


def says(*leaves, culprits=(), seen=FINE):
    return [(f.code, f.level) for f in find_gradient(GradientMeasured(seen, leaves=leaves, culprits=culprits))]


def culprit(title="bend", ratio=np.nan, error=0.5, meant="", users=True, parameters=("a", "b")):
    return Culprit("own", title, "layers.0", "model.py:3 in bend", error, ratio, meant, users, parameters)


def test_one_finding_a_cause_signs_first():
    half, turned = leaf("a", [1, 2], [2, 4]), leaf("b", [1, -2], [-1, 2])
    assert says(half, turned) == [("GW101", "error"), ("GW102", "error")]
    assert says(half, turned, culprits=(culprit(),)) == [("GW101", "error")]
    assert says(half, culprits=(culprit(), culprit())) == [("GW102", "error")]
    assert says(leaf("a", [1, 2], [1, 2])) == []
    (finding,) = find_gradient(GradientMeasured(FINE, leaves=(half,), culprits=(culprit(ratio=0.5),)))
    assert finding.where == "a; layers.0, bend, model.py:3 in bend"
    assert finding.evidence["ratio"] == 0.5
    assert "half of what it should be" in finding.what
    assert finding.row == "F1"


def test_what_may_be_meant_is_a_warning():
    wrong = leaf("a", [1, 2], [-1, -2])
    assert says(wrong, culprits=(culprit(meant="identity", ratio=-1.0),)) == [("GW101", "warning")]
    assert says(wrong, culprits=(culprit(meant="step"),)) == [("GW105", "warning")]
    assert says(culprits=(culprit(meant="identity", ratio=-1.0),)) == []
    assert says(culprits=(culprit(users=False),)) == []  # a library's, and no parameter suffers
    assert says(culprits=(culprit(error=0.005),)) == [("GW102", "warning")]  # perhaps an approximation
    assert says(leaf("a", [1, 2], [3, 5], stop="x.py:1")) == [("GW103", "warning")]
    assert says(leaf("a", [1, 2], [0, 0], stop="x.py:1", step="round")) == [("GW105", "warning")]
    odd = leaf("a", [1.0] * 30, [2.0] + [1.0] * 29)
    assert says(odd) == [("GW102", "warning")]  # one entry of thirty


def test_what_gets_no_gradient_is_an_error_unless_it_is_frozen():
    cut = leaf("a", [0, 0], [3, 5], zero=True, stop="x.py:1")
    assert says(cut) == [("GW103", "error")]
    assert says(leaf("a", [0, 0], [3, 5], zero=True, frozen=True)) == []
    assert says(leaf("a", [0, 0], [0, 0], zero=True, step="round, x.py:2")) == [("GW105", "warning")]
    assert says(leaf("a", [0, 0], [0, 0], zero=True)) == []


def test_numbers_and_repetition_come_first():
    assert says(leaf("a", [1], [-1]), seen=LossEvaluation(0.7, 0.9)) == [("GW107", "error")]
    assert says(seen=LossEvaluation(0.7, 0.7, ("a",), "layers.0, sqrt, m.py:3")) == [("GW104", "error")]
    assert says(seen=LossEvaluation(float("nan"), float("nan"), ("a",), "")) == [("GW104", "error")]
    assert says(seen=LossEvaluation(float("nan"), float("nan"), ("a",), "", True)) == [("GW104", "warning")]
