"""L1 with true zeros (row D4), against scikit-learn's coordinate descent and against loops by hand."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import gradwise
import gradwise.defaults
from gradwise.criteria.losses import GaussianLoss, SigmoidLoss
from gradwise.criteria.penalties import L1
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Fixed
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.models.padded_mlp import pad
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.averaging.dual_averaging import DualAveraging
from gradwise.optimisers.averaging.parameter_average import AveragedSgd, MovingAverage
from gradwise.optimisers.first_order.sgd import HeavyBall, Nesterov, Sgd
from gradwise.optimisers.wrappers.parameter_groups import Grouped
from gradwise.optimisers.wrappers.proximal import Proximal
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import AbstractOptimiser
from gradwise.specs.recipe import Recipe
from gradwise.testing.contracts import check_part
from gradwise.training.interval import advance
from gradwise.training.state import init
from gradwise.training.stopping import Off

RNG = np.random.default_rng(1)
T, D = 60, 12
X = (RNG.normal(size=(T, D)) + RNG.normal(size=(T, 1))) @ np.diag(np.linspace(0.5, 1.5, D))
TRUE = np.where(np.arange(D) % 3 == 0, np.linspace(-2.0, 2.0, D), 0.0)
NUMBERS = X @ TRUE + 0.3 + 0.5 * RNG.normal(size=T)
LABELS = (X @ TRUE + RNG.normal(size=T) > 0).astype(float)


def recipe(optimiser: AbstractOptimiser, **parts: Any) -> Recipe:
    chosen = {
        "model": Mlp(widths=()),
        "criterion": Supervised(GaussianLoss(), penalties=()),
        "batches": Fixed(T),
        **parts,
    }
    return gradwise.defaults.regression(optimiser=optimiser, **chosen)


@eqx.filter_jit
def _advance(problem, state, updates: int):
    return advance(problem, state, updates)[0].parameters


def train(optimiser: AbstractOptimiser, updates: int, targets=NUMBERS, **parts: Any):
    """A linear network's parameters after some updates."""
    examples = Examples(jnp.asarray(X, jnp.float32), jnp.asarray(targets[:, None], jnp.float32))
    problem, state = init(recipe(optimiser, **parts), examples, examples, outputs=1, key=jr.key(0))
    return _advance(problem, state, updates)


@pytest.mark.parametrize("inner", [Sgd(0.1), HeavyBall(0.02)], ids=lambda inner: type(inner).__name__)
def test_contract(inner: AbstractOptimiser) -> None:
    check_part(Proximal(inner))


@pytest.mark.parametrize(
    "inner",
    [Sgd(0.05), Sgd(0.05, smoothing=0.3), HeavyBall(0.01, momentum=0.8), Nesterov(0.01, momentum=0.8)],
    ids=["sgd", "smoothing", "heavy-ball", "nesterov"],
)
def test_lasso_has_scikit_learns_support_and_weights(inner: AbstractOptimiser) -> None:
    """Theirs is |y - Xw|^2 / (2n) + alpha |w|, so alpha is our coefficient over T. Measured: within 4e-6.

    Without the momenta's gain of 1 / (1 - momentum) their weights would be those of a fifth of alpha, 0.77 away.
    """
    from sklearn.linear_model import Lasso

    coefficient = 18.0
    theirs = Lasso(alpha=coefficient / T, tol=1e-12, max_iter=100_000).fit(X, NUMBERS)
    assert 0 < np.sum(theirs.coef_ == 0) < D  # something to tell apart
    ours = train(Proximal(inner, coefficient), 4000)
    weights = np.asarray(ours.output.weight)[0]
    np.testing.assert_array_equal(weights == 0, theirs.coef_ == 0)
    np.testing.assert_allclose(weights, theirs.coef_, atol=2e-5)
    assert float(ours.output.bias[0]) == pytest.approx(float(theirs.intercept_), abs=2e-5)


def test_logistic_regression_has_scikit_learns_support_and_weights() -> None:
    """Theirs is C times the summed loss + |w|, the intercept free (saga): C is 1 over ours. Measured: within 3e-6."""
    from sklearn.linear_model import LogisticRegression

    coefficient = 2.0
    theirs = LogisticRegression(l1_ratio=1.0, solver="saga", C=1 / coefficient, tol=1e-7, max_iter=50_000)
    theirs = theirs.fit(X, LABELS).coef_[0]
    assert 0 < np.sum(theirs == 0) < D
    criterion = Supervised(SigmoidLoss(), penalties=())
    ours = train(Proximal(HeavyBall(0.05, momentum=0.9), coefficient), 6000, LABELS, criterion=criterion)
    weights = np.asarray(ours.output.weight)[0]
    np.testing.assert_array_equal(weights == 0, theirs == 0)
    np.testing.assert_allclose(weights, theirs, atol=2e-5)


def test_the_subgradient_in_the_criterion_only_hovers() -> None:
    hovering = train(Sgd(0.05), 2000, criterion=Supervised(GaussianLoss(), penalties=(L1(18.0),)), batches=Fixed(20))
    assert np.all(np.asarray(hovering.output.weight) != 0)
    zeros = train(Proximal(Sgd(0.05), 18.0), 2000, batches=Fixed(20))
    assert np.sum(np.asarray(zeros.output.weight) == 0) >= D / 2


def soft(values: np.ndarray, amount: float) -> np.ndarray:
    return np.where(values > amount, values - amount, np.where(values < -amount, values + amount, 0.0))


def test_two_epochs_equal_a_loop_by_hand_the_short_batch_included() -> None:
    """60 examples in batches of 25, 25 and 10: the last one counts for 10/25 of an update, its prior too."""
    rate, coefficient, size = 0.05, 30.0, 25
    examples = Examples(jnp.asarray(X, jnp.float32), jnp.asarray(NUMBERS[:, None], jnp.float32))
    asked = recipe(Proximal(Sgd(rate), coefficient), batches=Fixed(size))
    problem, state = init(asked, examples, examples, outputs=1, key=jr.key(0))
    weights, bias = np.asarray(state.parameters.output.weight, float)[0], float(state.parameters.output.bias[0])
    for _ in range(2):
        for start in range(0, T, size):
            x, y = X[start : start + size], NUMBERS[start : start + size]
            wrong = x @ weights + bias - y
            weights = soft(weights - rate * wrong @ x / size, rate * coefficient * len(x) / (size * T))
            bias = bias - rate * wrong.sum() / size
    found = _advance(problem, state, 6).output
    np.testing.assert_allclose(found.weight[0], weights, atol=2e-6)
    assert float(found.bias[0]) == pytest.approx(bias, abs=2e-6)


def test_coefficients_by_layer_nest_and_off_is_the_inner_rule() -> None:
    parts = {"model": Mlp(widths=(4,), activation=Tanh(), dropout=0.0)}
    nested = Proximal(Proximal(Sgd(0.05), 60.0, "layers.0.weight"), 1e-3, "output.weight")
    ours = train(nested, 300, **parts)
    assert np.mean(np.asarray(ours.layers[0].weight) == 0) > 0.2
    assert np.all(np.asarray(ours.output.weight)[np.any(np.asarray(ours.layers[0].weight) != 0, 1)[None]] != 0)
    plain, off = train(Sgd(0.05), 20, **parts), train(Proximal(Sgd(0.05), 0.0), 20, **parts)
    assert eqx.tree_equal(plain, off)


def test_padded_weights_stay_exactly_zero() -> None:
    padded = pad(Mlp(widths=(3,), activation=Tanh(), dropout=0.0), (D,), lambda width: 8)
    examples = Examples(jnp.asarray(X, jnp.float32), jnp.asarray(NUMBERS[:, None], jnp.float32))
    asked = recipe(Proximal(HeavyBall(0.01), 3.0), model=padded)
    problem, state = init(asked, examples, examples, outputs=1, key=jr.key(0))
    absent = np.asarray(state.parameters.layers[0].weight) == 0
    assert absent[3:].all()
    assert not absent[:3].any()
    after = np.asarray(_advance(problem, state, 30).layers[0].weight)
    assert np.array_equal(after[3:], np.zeros_like(after[3:]))
    assert np.any(after[:3] != 0)


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        (MovingAverage(Sgd()), r"never taken. Write MovingAverage\(Proximal\(...\)\)"),
        (AveragedSgd(), r"never taken. Write PolyakAverage\(Proximal\(Sgd\(...\)\)\)"),
        (Grouped(Sgd()), "each parameter's rate"),
        (DualAveraging(), "would do nothing"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, AbstractOptimiser) else "",
)
def test_what_it_cannot_wrap_is_refused(inner: AbstractOptimiser, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        Proximal(inner)


def test_a_pattern_that_means_nothing_is_refused_before_training() -> None:
    with pytest.raises(RequestError, match=r"no parameter matches `Proximal.where='output.wieght'`"):
        train(Proximal(Sgd(), where="output.wieght"), 1)


def test_beside_adam_it_says_what_its_coefficient_means() -> None:
    (note,) = Proximal(Adam(), 2.0).findings()
    assert (note.level, note.row) == ("note", "D4")
    assert "beside Adam, `Proximal.coefficient=2`" in note.what
    assert Proximal(Sgd(), 2.0).findings() == Proximal(Adam(), 0.0).findings() == ()


def test_it_learns_iris_with_true_zeros() -> None:
    from sklearn.datasets import load_iris

    inputs, targets = load_iris(return_X_y=True)
    learner = gradwise.Classifier(
        optimiser=Proximal(Sgd(0.3), 2.0),
        model=Mlp(widths=(8,), dropout=0.0),
        stopping=Off(epochs=60),
        random_state=0,
    )
    learner.fit(inputs, targets)
    assert learner.score(inputs, targets) > 0.9
    assert np.sum(np.asarray(learner.record_.predictor.network.layers[0].weight) == 0) > 0
