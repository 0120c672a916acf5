"""Losses are negative log-likelihoods (row D7), finite everywhere (row B7), smoothed as stated (row J9)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, log_softmax
from sklearn.metrics import log_loss, mean_absolute_error, mean_squared_error

from gradwise.criteria.losses import AbstractLoss, GaussianLoss, SigmoidLoss, SoftmaxLoss

RNG = np.random.default_rng(0)
OUTPUTS = RNG.normal(scale=3.0, size=(40, 4)).astype(np.float32)
CLASSES = RNG.integers(0, 4, 40)
LABELS = RNG.integers(0, 2, (40, 4)).astype(np.float32)
NUMBERS = RNG.normal(size=(40, 4)).astype(np.float32)
EVERY = [
    (SoftmaxLoss(), CLASSES),
    (SoftmaxLoss(label_smoothing=0.1), CLASSES),
    (SigmoidLoss(), LABELS),
    (SigmoidLoss(label_smoothing=0.1), LABELS),
    (GaussianLoss(), NUMBERS),
]
NAMES = ["softmax", "softmax-smoothed", "sigmoid", "sigmoid-smoothed", "gaussian"]


def losses(loss: AbstractLoss, targets: np.ndarray, outputs: np.ndarray = OUTPUTS) -> np.ndarray:
    return np.asarray(jax.vmap(loss.loss)(outputs, targets))


def scores(loss: AbstractLoss, targets: np.ndarray) -> np.ndarray:
    return np.asarray(jax.vmap(loss.score)(OUTPUTS, targets))


def links(loss: AbstractLoss) -> np.ndarray:
    return np.asarray(jax.vmap(loss.link)(OUTPUTS))


# --- row D7


def test_softmax_is_the_multinomial_likelihood() -> None:
    found = losses(SoftmaxLoss(), CLASSES)
    np.testing.assert_allclose(found, -log_softmax(OUTPUTS, 1)[np.arange(40), CLASSES], atol=1e-5)
    np.testing.assert_allclose(links(SoftmaxLoss()).sum(1), 1.0, atol=1e-6)
    assert found.mean() == pytest.approx(log_loss(CLASSES, links(SoftmaxLoss()), labels=range(4)), abs=1e-5)
    one_hot = np.eye(4)[CLASSES]
    likelihood = stats.multinomial.logpmf(one_hot, 1, np.exp(log_softmax(OUTPUTS.astype(float), 1)))
    np.testing.assert_allclose(found, -likelihood, atol=1e-5)


def test_sigmoid_is_the_likelihood_of_independent_binomials() -> None:
    expected = -stats.bernoulli.logpmf(LABELS, expit(OUTPUTS.astype(float))).sum(1)
    np.testing.assert_allclose(losses(SigmoidLoss(), LABELS), expected, atol=1e-5)
    each = sum(log_loss(LABELS[:, k], links(SigmoidLoss())[:, k]) for k in range(4))
    assert losses(SigmoidLoss(), LABELS).mean() == pytest.approx(each, abs=1e-5)


def test_gaussian_is_the_likelihood_of_normals_of_unit_variance() -> None:
    """Without the constant k/2 log 2 pi, which no gradient sees; summed over the outputs, as a likelihood is."""
    constant = 4 * 0.5 * np.log(2 * np.pi)
    expected = -stats.norm.logpdf(NUMBERS, loc=OUTPUTS).sum(1) - constant
    np.testing.assert_allclose(losses(GaussianLoss(), NUMBERS), expected, rtol=1e-5)
    joint = -stats.multivariate_normal.logpdf(NUMBERS - OUTPUTS, np.zeros(4)) - constant
    np.testing.assert_allclose(losses(GaussianLoss(), NUMBERS), joint, rtol=1e-5)
    np.testing.assert_array_equal(links(GaussianLoss()), OUTPUTS)


@pytest.mark.parametrize(("loss", "targets"), EVERY, ids=NAMES)
def test_the_slope_is_prediction_minus_target(loss: AbstractLoss, targets: np.ndarray) -> None:
    """The link belongs to the loss: for every output model the gradient is the plain error."""
    slopes = np.asarray(jax.vmap(jax.grad(loss.loss))(OUTPUTS, targets))
    wanted = np.eye(4)[targets] if targets is CLASSES else targets
    smoothing = float(getattr(loss, "label_smoothing", 0.0))
    if smoothing:
        wanted = (1 - smoothing) * wanted + smoothing / (4 if targets is CLASSES else 2)
    np.testing.assert_allclose(slopes, links(loss) - wanted, atol=1e-5)


# --- row B7


@pytest.mark.parametrize(("loss", "targets"), EVERY, ids=NAMES)
@pytest.mark.parametrize("size", [1e4, -1e4])
def test_finite_loss_and_gradient_far_out(loss: AbstractLoss, targets: np.ndarray, size: float) -> None:
    extremes = size * np.asarray(
        [[1, -1, 1, -1], [-1, 1, -1, 1], [1, 1, 1, 1], [-1, -1, -1, -1], [1, 0, 0, 0], [0, 0, 0, -1]], np.float32
    )
    for target in jnp.asarray(targets[:6]):
        values, slopes = jax.vmap(jax.value_and_grad(loss.loss), in_axes=(0, None))(extremes, target)
        assert np.all(np.isfinite(values))
        assert np.all(np.isfinite(slopes))
        assert np.all(np.isfinite(jax.vmap(loss.link)(extremes)))


def test_far_out_values_are_right_and_not_only_finite() -> None:
    far = jnp.asarray([1e4, -1e4, 0.0, 0.0])
    classes, labels = jnp.arange(2), jnp.eye(2)
    assert float(SoftmaxLoss().loss(far, classes[0])) == 0.0
    assert float(SoftmaxLoss().loss(far, classes[1])) == 2e4
    assert float(SigmoidLoss().loss(far[:2], labels[0])) == 0.0
    assert float(SigmoidLoss().loss(far[:2], labels[1])) == 2e4
    np.testing.assert_array_equal(jax.grad(SoftmaxLoss().loss)(far, classes[1]), [1.0, -1.0, 0.0, 0.0])
    np.testing.assert_array_equal(jax.grad(SigmoidLoss().loss)(far[:2], labels[1]), [1.0, -1.0])


# --- row J9


def test_label_smoothing_is_the_cross_entropy_with_the_smoothed_target() -> None:
    for amount in (0.1, 0.5):
        target = (1 - amount) * np.eye(4)[CLASSES] + amount / 4
        expected = -(target * log_softmax(OUTPUTS.astype(float), 1)).sum(1)
        np.testing.assert_allclose(losses(SoftmaxLoss(label_smoothing=amount), CLASSES), expected, atol=1e-5)
        target = (1 - amount) * LABELS + amount / 2
        chances = expit(OUTPUTS.astype(float))
        expected = -(target * np.log(chances) + (1 - target) * np.log(1 - chances)).sum(1)
        np.testing.assert_allclose(losses(SigmoidLoss(label_smoothing=amount), LABELS), expected, atol=1e-5)


@pytest.mark.parametrize("kind", [SoftmaxLoss, SigmoidLoss])
def test_smoothing_switched_off_leaves_no_trace_in_the_program(kind: type) -> None:
    target = jnp.asarray(1) if kind is SoftmaxLoss else jnp.ones(4)

    def program(loss: AbstractLoss) -> str:
        return str(jax.make_jaxpr(jax.grad(loss.loss))(jnp.zeros(4), target))

    assert program(kind()) == program(kind(label_smoothing=0.0))
    assert len(program(kind(label_smoothing=0.1))) > len(program(kind()))


# --- scores and tasks


def test_scores() -> None:
    np.testing.assert_array_equal(scores(SoftmaxLoss(), CLASSES), OUTPUTS.argmax(1) != CLASSES)
    np.testing.assert_allclose(scores(SigmoidLoss(), LABELS), np.mean((OUTPUTS > 0) != (LABELS > 0.5), 1), atol=1e-6)
    assert scores(GaussianLoss(), NUMBERS).mean() == pytest.approx(mean_squared_error(NUMBERS, OUTPUTS), rel=1e-5)
    absolute = scores(GaussianLoss(score_by="absolute"), NUMBERS).mean()
    assert absolute == pytest.approx(mean_absolute_error(NUMBERS, OUTPUTS), rel=1e-5)


def test_a_score_by_loss_knows_no_smoothing() -> None:
    """Smoothing is a way to train; what is compared between runs is the plain log-loss."""
    plain, smoothed = (SoftmaxLoss(label_smoothing=s, score_by="loss") for s in (0.0, 0.2))
    np.testing.assert_array_equal(scores(plain, CLASSES), scores(smoothed, CLASSES))
    np.testing.assert_allclose(scores(plain, CLASSES), losses(SoftmaxLoss(), CLASSES), atol=1e-6)
    smoothed = SigmoidLoss(label_smoothing=0.2, score_by="loss")
    np.testing.assert_allclose(scores(smoothed, LABELS), losses(SigmoidLoss(), LABELS) / 4, atol=1e-5)


def test_tasks() -> None:
    assert [loss.task() for loss in (SoftmaxLoss(), SigmoidLoss(), GaussianLoss())] == ["classes", "labels", "numbers"]


# --- the root of the curvature


@pytest.mark.parametrize(("loss", "targets"), EVERY, ids=NAMES)
def test_the_roots_square_is_the_hessian(loss: AbstractLoss, targets: np.ndarray) -> None:
    """S S' is the second derivative in the outputs, in 64 bits; a smoothed target moves the slope alone."""
    assert loss.has_root
    with jax.enable_x64(True):
        units = jnp.eye(4)

        @jax.jit
        @jax.vmap
        def both(output: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
            columns = jax.vmap(lambda unit: loss.root(output, target, unit))(units)
            return columns.T @ columns, jax.hessian(loss.loss)(output, target)

        square, hessian = both(jnp.asarray(OUTPUTS, float), jnp.asarray(targets))
        np.testing.assert_allclose(square, hessian, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("loss", "targets"), EVERY[::2], ids=NAMES[::2])
def test_members_have_a_mean_loss_and_a_root_of_its_curvature(loss: AbstractLoss, targets: np.ndarray) -> None:
    """As many members as outputs, where a wrong axis would fit too."""
    assert loss.has_root
    rows, first = OUTPUTS[:4], jnp.asarray(targets[0])
    one = loss.of_members(jnp.asarray(rows[0]), first)
    assert float(one) == float(loss.loss(jnp.asarray(rows[0]), first))
    apart = [float(loss.loss(jnp.asarray(row), first)) for row in rows]
    assert float(loss.of_members(jnp.asarray(rows), first)) == pytest.approx(np.mean(apart), rel=1e-6)
    with jax.enable_x64(True):
        outputs, target = jnp.asarray(rows, float), jnp.asarray(targets[0])
        hessian = jax.jit(jax.hessian(loss.of_members))(outputs, target).reshape(16, 16)
        units = jnp.eye(16).reshape(16, 4, 4)
        columns = jax.jit(jax.vmap(lambda unit: loss.root_of_members(outputs, target, unit)))(units).reshape(16, 16)
        np.testing.assert_allclose(columns.T @ columns, hessian, atol=1e-10)


@pytest.mark.parametrize(("loss", "targets"), EVERY, ids=NAMES)
def test_the_root_is_linear_and_finite_far_out(loss: AbstractLoss, targets: np.ndarray) -> None:
    assert loss.has_root
    output, target, one, two = map(jnp.asarray, (OUTPUTS[0], targets[0], NUMBERS[0], NUMBERS[1]))
    apart = 2.0 * loss.root(output, target, one) - loss.root(output, target, two)
    np.testing.assert_allclose(loss.root(output, target, 2.0 * one - two), apart, rtol=1e-5, atol=1e-6)
    for size in (1e4, -1e4):
        assert np.all(np.isfinite(loss.root(size * jnp.asarray([1.0, -1.0, 0.0, 1.0]), target, one)))
