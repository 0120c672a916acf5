"""The criterion (rows D2, J9): over an epoch it is the whole criterion divided by B, whatever B is."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression, Ridge

from gradwise.criteria.losses import GaussianLoss, SigmoidLoss, SoftmaxLoss
from gradwise.criteria.penalties import L1, L2
from gradwise.criteria.supervised import Supervised
from gradwise.data.batches import Fixed
from gradwise.models.activations import Tanh
from gradwise.models.initial_weights import ZeroWeights
from gradwise.models.mlp import Mlp
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import Batch
from gradwise.specs.dataset import Classes, Labels, Numbers
from gradwise.specs.paths import trainable
from tests import oracles

RNG = np.random.default_rng(0)
T = 20
X = RNG.normal(size=(T, 4))
CLASSES = RNG.integers(0, 3, T)
NUMBERS = X @ RNG.normal(size=(4, 1)) + 0.3 * RNG.normal(size=(T, 1)) + 1.0
SIZES = (1, 3, 7, 20)  # 3 and 7 do not divide 20


def network(parameters: oracles.Parameters):
    """A gradwise network with these parameters: one tanh layer (V, b) if given, linear outputs (W, c)."""
    widths = (parameters["V"].shape[0],) if "V" in parameters else ()
    model = Mlp(widths=widths, activation=Tanh(), initial=ZeroWeights(), output_initial=ZeroWeights(), dropout=0.0)
    built = model.build((4,), parameters["W"].shape[0], key=jr.key(0))
    values = {name: jnp.asarray(value, jnp.float32) for name, value in parameters.items()}
    built = eqx.tree_at(lambda n: (n.output.weight, n.output.bias), built, (values["W"], values["c"]))
    if widths:
        built = eqx.tree_at(lambda n: (n.layers[0].weight, n.layers[0].bias), built, (values["V"], values["b"]))
    return built


def by_letter(gradient) -> oracles.Parameters:
    """A network's gradient under the oracle's names."""
    named = {"W": gradient.output.weight, "c": gradient.output.bias}
    if gradient.layers:
        named |= {"V": gradient.layers[0].weight, "b": gradient.layers[0].bias}
    return {name: np.asarray(value, np.float64) for name, value in named.items()}


@eqx.filter_jit
def gradients(criterion: Supervised, built, targets, size: int, weights=None):
    """Each update's gradient over one epoch at fixed parameters, and each update's B'."""
    updates = jnp.arange(-(-T // size))
    rows, present, _ = Fixed(size=size).indices(updates, T, key=jr.key(0))
    parameters, rest = trainable(built)
    inputs = jnp.asarray(X, jnp.float32)

    def one(rows, present):
        used = present if weights is None else present * weights[rows]
        batch = Batch(inputs[rows], targets[rows], used, present, jnp.asarray(float(T)))
        return jax.grad(lambda moved: criterion(eqx.combine(moved, rest), batch, key=jr.key(0))[0])(parameters)

    return jax.vmap(one)(rows, present), present.sum(1)


def epoch_sum(criterion: Supervised, built, targets, size: int, weights=None) -> oracles.Parameters:
    each, _ = gradients(criterion, built, jnp.asarray(targets), size, weights)
    return by_letter(jax.tree.map(lambda leaf: leaf.sum(0), each))


TANH_NET = {
    "V": RNG.normal(size=(5, 4)),
    "b": RNG.normal(size=5),
    "W": RNG.normal(size=(3, 5)),
    "c": RNG.normal(size=3),
}


# --- row D2


@pytest.mark.parametrize("size", SIZES)
def test_over_an_epoch_the_gradient_is_the_whole_criterion_over_b(size: int) -> None:
    """(1/B) grad(sum of L + lambda Omega), with two penalties of their own layer and coefficient."""
    penalties = (L2(0.7, where="layers.0.weight"), L2(1.5, where="output.weight"), L1(0.4, where="output.weight"))
    criterion = Supervised(SoftmaxLoss(), penalties=penalties)
    _, expected = oracles.net_gradient(TANH_NET, X, CLASSES)
    expected["V"] = expected["V"] + 0.7 * 2 * TANH_NET["V"]
    expected["W"] = expected["W"] + 1.5 * 2 * TANH_NET["W"] + 0.4 * np.sign(TANH_NET["W"])
    found = epoch_sum(criterion, network(TANH_NET), CLASSES, size)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value / size, rtol=1e-5, atol=1e-5, err_msg=name)


def ridge(strength: float) -> oracles.Parameters:
    """The minimum of sum of (1/2)(y - wx - c)^2 + strength |w|^2: in scikit-learn's terms alpha = 2 lambda."""
    fitted = Ridge(alpha=2 * strength).fit(X, NUMBERS[:, 0])
    return {"W": fitted.coef_.reshape(1, 4), "c": np.asarray([fitted.intercept_])}


@pytest.mark.parametrize("size", SIZES)
def test_the_optimum_does_not_depend_on_b(size: int) -> None:
    """At ridge regression's own minimum the gradient of an epoch is 0 for every B; the wrong factor B/T moves it."""
    strength = 3.0
    optimum = ridge(strength)
    built, targets = network(optimum), jnp.asarray(NUMBERS, jnp.float32)
    right = Supervised(GaussianLoss(), penalties=(L2(strength),))
    for name, value in epoch_sum(right, built, targets, size).items():
        np.testing.assert_allclose(value, 0.0, atol=1e-5 * T, err_msg=name)
    # The chapter's printed factor: each update adds (B/T) lambda grad Omega to an averaged loss gradient.
    each, present = gradients(Supervised(GaussianLoss(), penalties=()), built, targets, size)
    wrong = by_letter(jax.tree.map(lambda leaf: leaf.sum(0), each))["W"]
    wrong = wrong + float(present.sum()) / T * strength * 2 * optimum["W"]
    if size > 1:
        assert np.abs(wrong).max() > 0.1
    else:
        np.testing.assert_allclose(wrong, 0.0, atol=1e-5 * T)  # at B = 1 both are the same


def minimised(criterion: Supervised, targets: np.ndarray, outputs: int) -> oracles.Parameters:
    """The linear model at the minimum of the whole criterion, by SciPy."""
    batch = Batch(jnp.asarray(X, jnp.float32), jnp.asarray(targets), jnp.ones(T), jnp.ones(T), jnp.asarray(float(T)))
    built = network({"W": np.zeros((outputs, 4)), "c": np.zeros(outputs)})

    @jax.jit
    def value(flat):
        moved = eqx.tree_at(
            lambda n: (n.output.weight, n.output.bias),
            built,
            (flat[: 4 * outputs].reshape(outputs, 4), flat[4 * outputs :]),
        )
        return criterion(moved, batch, key=jr.key(0))[0]

    slope = jax.jit(jax.grad(value))
    found = minimize(
        lambda p: (float(value(jnp.asarray(p, jnp.float32))), np.asarray(slope(jnp.asarray(p, jnp.float32)), float)),
        np.zeros(5 * outputs),
        jac=True,
        method="BFGS",
        options={"gtol": 1e-5},
    )
    return {"W": found.x[: 4 * outputs].reshape(outputs, 4), "c": found.x[4 * outputs :]}


def test_the_minimum_is_that_of_scikit_learn() -> None:
    """Multinomial logistic regression: its C multiplies the summed loss beside |w|^2 / 2, so C = 1/(2 lambda)."""
    found = minimised(Supervised(SoftmaxLoss(), penalties=(L2(0.8),)), CLASSES, 3)
    fitted = LogisticRegression(C=1 / (2 * 0.8), tol=1e-8, max_iter=1000).fit(X, CLASSES)
    np.testing.assert_allclose(found["W"], fitted.coef_, atol=2e-3)
    chances = oracles.softmax(X @ found["W"].T + found["c"])
    np.testing.assert_allclose(chances, fitted.predict_proba(X), atol=1e-3)


def test_an_endless_penalty_leaves_the_constant_predictor() -> None:
    """Biases are free: what is left is the frequency of each class, or the mean of the numbers, for every input."""
    found = minimised(Supervised(SoftmaxLoss(), penalties=(L2(1e4),)), CLASSES, 3)
    frequencies = np.bincount(CLASSES, minlength=3) / T
    np.testing.assert_allclose(oracles.softmax(X @ found["W"].T + found["c"]), [frequencies] * T, atol=2e-3)
    found = minimised(Supervised(GaussianLoss(), penalties=(L2(1e4),)), NUMBERS.astype(np.float32), 1)
    np.testing.assert_allclose(X @ found["W"].T + found["c"], [[NUMBERS.mean()]] * T, atol=5e-3)


def test_sample_weights_weigh_losses_and_leave_penalties_alone() -> None:
    weights = RNG.uniform(0.0, 3.0, T)
    criterion = Supervised(SoftmaxLoss(), penalties=(L2(1.5),))
    expected = {name: 2 * 1.5 * value for name, value in TANH_NET.items() if name in "VW"}
    for row in range(T):
        _, one = oracles.net_gradient(TANH_NET, X[row : row + 1], CLASSES[row : row + 1])
        expected = {name: expected.get(name, 0.0) + weights[row] * one[name] for name in one}
    found = epoch_sum(criterion, network(TANH_NET), CLASSES, 7, jnp.asarray(weights, jnp.float32))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value / 7, rtol=1e-4, atol=1e-5)


def test_terms_hold_one_value_an_example() -> None:
    batch = _batch(T)
    total, terms = evaluated(Supervised(SoftmaxLoss(), penalties=(L2(2.0),)), network(TANH_NET), batch)
    loss, _ = oracles.net_gradient(TANH_NET, X, CLASSES)
    assert float(terms["loss"].sum()) == pytest.approx(loss, rel=1e-5)
    penalty = 2.0 * sum(np.square(TANH_NET[name]).sum() for name in "VW")
    assert float(total) == pytest.approx((loss + penalty) / T, rel=1e-5)
    hidden = np.tanh(X @ TANH_NET["V"].T + TANH_NET["b"])
    guesses = (hidden @ TANH_NET["W"].T + TANH_NET["c"]).argmax(1)
    np.testing.assert_array_equal(terms["score"], guesses != CLASSES)


# --- row J9


def _batch(size: int, targets: np.ndarray = CLASSES, present: int | None = None) -> Batch:
    used = jnp.asarray(np.arange(size) < (size if present is None else present), jnp.float32)
    return Batch(jnp.asarray(X[:size], jnp.float32), jnp.asarray(targets[:size]), used, used, jnp.asarray(float(T)))


MIX_KEY = jr.key(4)
MIXED = Supervised(SoftmaxLoss(), mixup=0.4)


@eqx.filter_jit
def evaluated(criterion: Supervised, built, batch: Batch):
    return criterion(built, batch, key=MIX_KEY)


@pytest.fixture(scope="module")
def blend() -> float:
    """The blend that the criterion draws from this key."""
    return float(jax.jit(lambda: jr.beta(jr.split(MIX_KEY)[0], 0.4, 0.4))())


@pytest.mark.parametrize("present", [6, 4])
def test_mixup_is_the_hand_formula(present: int, blend: float) -> None:
    """Each example blended with the one before it, inputs and losses alike, by one number drawn from Beta(a, a)."""
    total, terms = evaluated(MIXED, network(TANH_NET), _batch(6, present=present))
    assert 0 < blend < 1
    partners = np.roll(np.arange(6), 1)
    blended = blend * X[:6] + (1 - blend) * X[partners]
    expected = np.zeros(6)
    for row in range(6):
        own, _ = oracles.net_gradient(TANH_NET, blended[row : row + 1], CLASSES[row : row + 1])
        other, _ = oracles.net_gradient(TANH_NET, blended[row : row + 1], CLASSES[partners[row] : partners[row] + 1])
        expected[row] = blend * own + (1 - blend) * other
    np.testing.assert_allclose(terms["loss"], expected, rtol=1e-4)
    assert float(total) == pytest.approx(expected[:present].sum() / 6, rel=1e-4)


def test_mixup_of_numbers_is_training_on_blended_targets_up_to_a_constant(blend: float) -> None:
    """For squared errors the blend of two losses has the gradient of the loss on the blended target."""
    linear = {"W": RNG.normal(size=(1, 4)), "c": np.zeros(1)}
    batch = _batch(6, NUMBERS.astype(np.float32))
    partners = np.roll(np.arange(6), 1)
    blended = blend * X[:6] + (1 - blend) * X[partners]
    targets = blend * NUMBERS[:6] + (1 - blend) * NUMBERS[partners]
    error = blended @ linear["W"].T + linear["c"] - targets
    parameters, rest = trainable(network(linear))
    mixed = Supervised(GaussianLoss(), mixup=0.4)
    slope = jax.grad(lambda moved: evaluated(mixed, eqx.combine(moved, rest), batch)[0])(parameters)
    np.testing.assert_allclose(slope.output.weight, error.T @ blended / 6, rtol=1e-4)


def test_knobs_that_are_off_leave_no_trace_in_the_program() -> None:
    batch = _batch(6)
    parameters, rest = trainable(network(TANH_NET))

    def program(criterion: Supervised) -> str:
        def value(moved, key):
            return criterion(eqx.combine(moved, rest), batch, key=key)[0]

        return str(jax.make_jaxpr(jax.grad(value))(parameters, jr.key(0)))

    bare = program(Supervised(SoftmaxLoss(), penalties=()))
    assert program(Supervised(SoftmaxLoss())) == bare
    off = Supervised(SoftmaxLoss(label_smoothing=0.0), penalties=(L2(0.0), L1(0.0, where="no.such")), mixup=0.0)
    assert program(off) == bare
    assert "random_bits" not in bare
    for on in (
        Supervised(SoftmaxLoss(label_smoothing=0.1)),
        Supervised(SoftmaxLoss(), penalties=(L2(0.1),)),
        Supervised(SoftmaxLoss(), mixup=0.1),
    ):
        assert len(program(on)) > len(bare)


# --- what a criterion says of examples and tasks


def test_examples_are_scored_without_mixing_or_dropping() -> None:
    built = network(TANH_NET)
    score, loss = MIXED.examples(built, jnp.asarray(X, jnp.float32), jnp.asarray(CLASSES))
    whole, _ = oracles.net_gradient(TANH_NET, X, CLASSES)
    assert float(loss.sum()) == pytest.approx(whole, rel=1e-5)
    assert score.shape == loss.shape == (T,)
    np.testing.assert_allclose(Supervised(SoftmaxLoss()).link(jnp.zeros(3)), [1 / 3] * 3, rtol=1e-6)


def test_a_task_that_does_not_fit_is_refused_in_one_line() -> None:
    tasks = (Classes(np.arange(3)), Labels(("a", "b")), Numbers())
    for loss, right in zip((SoftmaxLoss(), SigmoidLoss(), GaussianLoss()), tasks, strict=True):
        Supervised(loss).check_task(right)
        for wrong in tasks:
            if wrong is not right:
                with pytest.raises(RequestError, match=f"learns {right.kind}, but the target holds {wrong.kind}"):
                    Supervised(loss).check_task(wrong)
