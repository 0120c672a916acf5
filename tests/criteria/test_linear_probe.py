"""The probes against scikit-learn's, and `Probed` against the criterion it wraps."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise import defaults
from gradwise.criteria.corruption import Masking
from gradwise.criteria.linear_probe import Logistic, Probed, Ridge, as_goals, known_rows, probe_scores
from gradwise.criteria.reconstruction import Reconstruction, SquaredError
from gradwise.curvature.objective import Examples
from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.specs.contracts import Batch
from gradwise.testing.contracts import check_part
from gradwise.training.interval import evaluate
from gradwise.training.state import init


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    loaded = load_digits()
    return loaded.data / 16.0, loaded.target


def test_ridge_is_scikit_learns(digits: tuple[np.ndarray, np.ndarray]) -> None:
    from sklearn.linear_model import Ridge as Reference

    x, y = digits[0][:300], np.eye(10)[digits[1][:300]]
    weights = np.ones(300)
    weights[::3] = 0.0
    with jax.enable_x64(True):
        weight, bias = Ridge(decay=0.01).fit(jnp.asarray(x), jnp.asarray(y), jnp.asarray(weights))
    used = weights > 0
    centred = x[used] - x[used].mean(0)
    alpha = 0.01 * (centred**2).mean() * used.sum()  # the decay is in units of the codes' mean square, a row
    reference = Reference(alpha=alpha).fit(x[used], y[used])
    np.testing.assert_allclose(weight.T, reference.coef_, atol=1e-9)
    np.testing.assert_allclose(bias, reference.intercept_, atol=1e-9)


def test_logistic_comes_near_scikit_learns_optimum(digits: tuple[np.ndarray, np.ndarray]) -> None:
    from sklearn.linear_model import LogisticRegression

    x, y = digits[0][:600], digits[1][:600]
    probe = Logistic(decay=0.01, iterations=400)
    with jax.enable_x64(True):
        weight, bias = probe.fit(jnp.asarray(x), jax.nn.one_hot(y, 10), jnp.ones(600))
    centred = x - x.mean(0)
    decay = 0.01 * (centred**2).mean()
    reference = LogisticRegression(C=1.0 / (decay * len(x)), tol=1e-10, max_iter=5000).fit(x, y)

    def objective(weight: np.ndarray, bias: np.ndarray) -> float:
        logits = x @ weight + bias
        logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        return float(-logs[np.arange(len(x)), y].mean() + decay / 2 * (weight**2).sum())

    best = objective(reference.coef_.T, reference.intercept_)
    assert best <= objective(np.asarray(weight), np.asarray(bias)) <= 1.002 * best + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("probe", [Ridge(), Logistic()])
def test_scores_are_errors_on_the_validation_codes_and_unlabelled_rows_count_nothing(probe, digits) -> None:
    x, y = (jnp.asarray(part) for part in digits)
    x = x.astype(jnp.float32)
    hidden = y.at[:200].set(-1)
    spoilt = x.at[:200].set(7.0)  # rows without a target must not move the probe
    wrong, loss = probe_scores(probe, (spoilt[:1200], x[1200:]), (hidden[:1200], y[1200:]), 10)
    alone, _ = probe_scores(probe, (x[200:1200], x[1200:]), (y[200:1200], y[1200:]), 10)
    assert float(jnp.mean(jnp.abs(wrong - alone))) <= 0.002
    assert 0.02 < float(wrong.mean()) < 0.15
    assert set(np.unique(wrong).tolist()) == {0.0, 1.0}
    assert bool(jnp.all(loss >= 0))


@pytest.mark.slow
def test_numbers_are_judged_by_their_squared_error() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 5)).astype(np.float32)
    y = (x @ random.normal(size=(5, 2)) + 3.0 + 0.1 * random.normal(size=(300, 2))).astype(np.float32)
    y[:50] = np.nan
    codes, targets = ((jnp.asarray(part[:200]), jnp.asarray(part[200:])) for part in (x, y))
    score, _ = probe_scores(Ridge(decay=1e-6), codes, targets, 0)
    assert 0.005 < float(score.mean()) < 0.02  # the noise has variance 0.01
    assert known_rows(jnp.asarray(y), 0).sum() == 250
    assert np.isfinite(as_goals(jnp.asarray(y), 0)).all()


@pytest.mark.slow
def test_constant_codes_say_nothing_and_break_nothing() -> None:
    codes = jnp.ones((30, 4))
    y = jnp.arange(30) % 3
    for probe in (Ridge(), Logistic()):
        wrong, loss = probe_scores(probe, (codes, codes), (y, y), 3)
        assert float(wrong.mean()) == pytest.approx(2 / 3)
        assert bool(jnp.all(jnp.isfinite(loss)))


def test_probed_trains_as_its_criterion_does_and_is_judged_by_the_probe(digits) -> None:
    x, y = jnp.asarray(digits[0], jnp.float32), jnp.asarray(digits[1], jnp.int32)
    inner = Reconstruction(corruption=Masking(0.3))
    probed = Probed(inner, Ridge(), classes=10)
    model = MlpAutoEncoder(widths=(30,)).build((64,), 0, key=jr.key(0))
    batch = Batch(x[:20], y[:20], jnp.ones(20), jnp.ones(20), jnp.asarray(20.0))
    assert float(probed(model, batch, key=jr.key(1))[0]) == float(inner(model, batch, key=jr.key(1))[0])
    scores = probed.judge(model, Examples(x[:1000], y[:1000]), Examples(x[1000:], y[1000:]))
    codes = jax.vmap(model)(x)
    expected, _ = probe_scores(Ridge(), (codes[:1000], codes[1000:]), (y[:1000], y[1000:]), 10)
    np.testing.assert_allclose(scores.score, expected)
    assert probed.measured(None) == inner.measured(None)
    np.testing.assert_array_equal(probed.decode(model, codes[0]), inner.decode(model, codes[0]))
    check_part(probed)


def test_weights_of_validation_weigh_the_probes_scores_too(digits) -> None:
    x, y = jnp.asarray(digits[0], jnp.float32), jnp.asarray(digits[1], jnp.int32)
    weights = jnp.asarray([0.0, 1.0, 2.0] * 10)
    criterion = Probed(Reconstruction(SquaredError()), Ridge(), classes=10)
    recipe = defaults.classification(model=MlpAutoEncoder(widths=(5,)), criterion=criterion)
    train, valid = Examples(x[:200], y[:200]), Examples(x[200:230], y[200:230], weights)
    problem, state = init(recipe, train, valid, outputs=10, classes=10, key=jr.key(0))
    model = problem.model(state.parameters)
    plain = criterion.judge(model, train, valid)
    np.testing.assert_allclose(evaluate(problem, model).loss, plain.loss * weights, rtol=1e-5)
