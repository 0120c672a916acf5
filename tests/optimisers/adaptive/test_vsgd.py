"""vSGD: its rate is the closed-form optimum where there is one, and untouched it does what a tuned rate does."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jaxtyping import Array, Float
from sklearn.datasets import load_digits

from gradwise import defaults
from gradwise.curvature.objective import Examples, Objective, gather
from gradwise.data.batches import Fixed, Reshuffled
from gradwise.models.activations import Rectifier, Tanh
from gradwise.models.mlp import BatchNorm, Mlp
from gradwise.optimisers.adaptive.vsgd import Vsgd, VsgdFd
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.runtime.errors import RequestError
from gradwise.specs.adapters import OutputCriterion
from gradwise.specs.contracts import AbstractOptimiser
from gradwise.specs.paths import trainable
from gradwise.testing.contracts import check_part
from gradwise.training.interval import interval
from gradwise.training.state import init
from gradwise.training.stopping import Off
from tests.marks import parametrize_one_quick

CURVATURE, DISTANCE, NOISE = 3.0, 0.7, 1.5


class Place(eqx.Module):
    """A number of its own; the inputs are not looked at."""

    theta: Float[Array, " 1"]

    def __call__(self, x: Array) -> Array:
        return self.theta + 0.0 * x[:1]


def _loss(output: Array, target: Array) -> Array:
    return 0.5 * CURVATURE * jnp.sum((output - target) ** 2)


def _rates(optimiser: AbstractOptimiser, batch: int, updates: int) -> tuple[np.ndarray, float]:
    """The rates of updates that are computed and not made: theta stays, so that the means settle."""
    draws = NOISE * np.random.default_rng(0).normal(size=(updates * batch, 1))
    train = Examples(jnp.zeros((updates * batch, 1)), jnp.asarray(draws, jnp.float32))
    parameters, rest = trainable(Place(jnp.full(1, DISTANCE)))
    rule = optimiser.build()

    def body(state, number):  # type: ignore[no-untyped-def]
        chosen = gather(train, number * batch + jnp.arange(batch), jnp.ones(batch))
        objective = Objective(OutputCriterion(_loss), Fixed(batch), rest, train, jr.key(0), number, chosen)
        value, gradient = objective.value_and_gradient(parameters)
        moves, state = rule.update(gradient, state, parameters, value=value, objective=objective)
        kept = state._replace(memory=jax.tree.map(lambda tau: jnp.full_like(tau, 2000.0), state.memory))
        return kept, -moves.theta[0] / gradient.theta[0]

    start = rule.init(parameters)
    start = start._replace(memory=jax.tree.map(lambda tau: jnp.full_like(tau, 2000.0), start.memory))
    _, rates = jax.jit(lambda first: jax.lax.scan(body, first, jnp.arange(updates)))(start)
    signal = (CURVATURE * (DISTANCE - draws.mean())) ** 2
    noise = CURVATURE**2 * draws.var()
    best = signal / (signal + noise / batch) / CURVATURE
    return np.asarray(rates), float(best)


@parametrize_one_quick("by", ["parameter", "layer", "all"])
@pytest.mark.parametrize("batch", [1, 8])
def test_at_a_fixed_point_the_rate_is_the_closed_form_optimum(by: str, batch: int) -> None:
    """eta = G^2 / (h (G^2 + sigma^2/n)), with theta held fixed and a long memory."""
    rates, best = _rates(Vsgd(by=by, slowness=1.0), batch, 20_000)
    assert abs(np.median(rates[10_000:]) / best - 1.0) < 0.1  # the mean of 2000 is noisy: measured within 0.06


@pytest.mark.slow
def test_by_finite_differences_the_rate_is_the_closed_form_optimum_too() -> None:
    rates, best = _rates(VsgdFd(slowness=1.0), 8, 20_000)
    assert abs(np.median(rates[10_000:]) / best - 1.0) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Vsgd(by="parameter"), Vsgd(by="all")], ids=["l", "g"])  # defaults: test_contracts
def test_the_contract(kind: AbstractOptimiser) -> None:
    check_part(kind)


def test_no_rate_is_left_to_tune() -> None:
    from gradwise.specs.knobs import declarations

    for kind in (Vsgd, VsgdFd):
        assert not [name for name, _ in declarations(kind) if "rate" in name]


def test_batch_normalisation_is_refused_before_training() -> None:
    examples = Examples(jnp.zeros((10, 4)), jnp.zeros(10, jnp.int32))
    recipe = defaults.classification(model=Mlp(widths=(4,), normalisation=BatchNorm()), optimiser=Vsgd())
    with pytest.raises(RequestError, match=r"Vsgd needs each example's own gradient.*batch normalisation"):
        init(recipe, examples, examples, outputs=3, classes=3, key=jr.key(0))


def test_it_settles_on_a_noisy_quadratic_where_a_constant_rate_does_not() -> None:
    """Excess of the mean criterion over its least, after the same 4000 draws one at a time."""
    draws = NOISE * np.random.default_rng(1).normal(size=(4000, 1))
    train = Examples(jnp.zeros((4000, 1)), jnp.asarray(draws, jnp.float32))
    start, rest = trainable(Place(jnp.full(1, 5.0)))

    def excess(optimiser: AbstractOptimiser) -> float:
        rule = optimiser.build()

        def body(carry, number):  # type: ignore[no-untyped-def]
            point, state = carry
            chosen = gather(train, number[None], jnp.ones(1))
            objective = Objective(OutputCriterion(_loss), Fixed(1), rest, train, jr.key(0), number, chosen)
            value, gradient = objective.value_and_gradient(point)
            moves, state = rule.update(gradient, state, point, value=value, objective=objective)
            point = optax.apply_updates(point, moves)
            return (point, state), point.theta[0]

        _, path = jax.jit(lambda: jax.lax.scan(body, (start, rule.init(start)), jnp.arange(4000)))()
        return float(np.mean((np.asarray(path)[-1000:] - draws.mean()) ** 2))

    assert max(excess(Vsgd()), excess(Vsgd(by="parameter"))) < 0.1 * excess(Sgd(0.1))


@pytest.mark.slow
@pytest.mark.parametrize("activation", [Tanh(), Rectifier()], ids=["tanh", "rectifier"])
def test_untouched_it_is_no_worse_than_the_best_of_five_rates(activation) -> None:  # type: ignore[no-untyped-def]
    inputs, targets = load_digits(return_X_y=True)
    scaled = jnp.asarray((inputs - 8) / 8, jnp.float32)
    train = Examples(scaled[:1200], jnp.asarray(targets[:1200]))
    valid = Examples(scaled[1200:], jnp.asarray(targets[1200:]))

    def reached(optimiser: AbstractOptimiser) -> tuple[float, float]:
        recipe = defaults.classification(
            model=Mlp(widths=(100,), activation=activation, dropout=0.0),
            optimiser=optimiser,
            batches=Reshuffled(32),
            stopping=Off(epochs=20),
        )
        problem, state = init(recipe, train, valid, outputs=10, classes=10, key=jr.key(0))
        errors = []
        for _ in range(12):
            state, row = interval(problem, state, problem.updates_per_epoch)
            errors.append(float(row.valid_score))
        return float(row.train_loss), min(errors)

    tuned = [reached(Sgd(rate)) for rate in (0.01, 0.03, 0.1, 0.3, 1.0)]
    loss, error = reached(Vsgd(by="parameter"))
    assert loss < min(one for one, _ in tuned)  # measured: 0.0005 against 0.028, and 0.0009 against 0.007
    by_layer = reached(Vsgd())[1]
    assert by_layer < 1.2 * min(one for _, one in tuned)  # measured: 7.5 % against 7.5 %, and 7.7 % against 6.7 %
    assert error < 1.1 * min(one for _, one in tuned)  # measured: 6.4 % against 7.5 %, and 6.4 % against 6.7 %
