"""The criterion as a line search asks for it (rows C11, H7): the numbers of the objective, whatever their form."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from gradwise.criteria.losses import GaussianLoss, SigmoidLoss, SoftmaxLoss
from gradwise.criteria.penalties import L2
from gradwise.criteria.supervised import Supervised
from gradwise.curvature.objective import Examples, Objective, gather
from gradwise.data.batches import Fixed
from gradwise.models.mlp import Mlp
from gradwise.optimisers.second_order.searched_criterion import criterion_of, line_of
from gradwise.specs.contracts import AbstractModel

RNG = np.random.default_rng(0)
COUNT, WIDTH = 23, 4
TARGETS = {
    "classes": (SoftmaxLoss(), 3, RNG.integers(0, 3, COUNT)),
    "labels": (SigmoidLoss(), 1, RNG.integers(0, 2, (COUNT, 1)).astype(np.float32)),
    "numbers": (GaussianLoss(), 2, RNG.normal(size=(COUNT, 2)).astype(np.float32)),
    "many": (SoftmaxLoss(), 40, RNG.integers(0, 40, COUNT)),
}


def _objective(kind: str, model: AbstractModel, mixup: float = 0.0) -> tuple[Objective, object]:
    """Weighted examples and a batch whose last slots are not in use."""
    loss, outputs, targets = TARGETS[kind]
    inputs = jnp.asarray(RNG.normal(size=(COUNT, WIDTH)), jnp.float32)
    train = Examples(inputs, jnp.asarray(targets), jnp.asarray(RNG.uniform(0.5, 2.0, COUNT), jnp.float32))
    network = model.build((WIDTH,), outputs, key=jr.key(1))
    parameters, rest = eqx.partition(network, eqx.is_inexact_array)
    parameters = jax.tree.map(lambda x: x + jnp.asarray(RNG.normal(size=x.shape) * 0.3, x.dtype), parameters)
    batch = gather(train, jnp.arange(COUNT), (jnp.arange(COUNT) < 20).astype(jnp.float32))
    criterion = Supervised(loss, penalties=(L2(0.7),), mixup=mixup)
    number = jnp.zeros((), jnp.int32)
    return Objective(criterion, Fixed(COUNT), rest, train, jr.key(0), number, batch), parameters


LINEAR, BENT = Mlp(widths=(), dropout=0.0), Mlp(widths=(5,), dropout=0.3)


@pytest.mark.parametrize("kind", list(TARGETS))
@pytest.mark.parametrize("model", [LINEAR, BENT], ids=["linear", "bent"])
def test_it_is_the_objective(kind: str, model: AbstractModel) -> None:
    """Noise included: a search must see one criterion."""
    objective, parameters = _objective(kind, model)
    expected = jax.value_and_grad(objective)(parameters)
    found = jax.value_and_grad(criterion_of(objective))(parameters)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


def test_a_criterion_that_is_no_sum_is_asked_as_it_is() -> None:
    objective, parameters = _objective("numbers", LINEAR, mixup=0.4)
    assert criterion_of(objective) is objective
    assert np.isfinite(float(objective(parameters)))


@pytest.mark.parametrize("kind", list(TARGETS))
@pytest.mark.parametrize("model", [LINEAR, BENT], ids=["linear", "bent"])
@pytest.mark.parametrize("often", [False, True])
def test_looks_along_a_line_tell_value_slope_and_gradient(kind: str, model: AbstractModel, often: bool) -> None:
    objective, parameters = _objective(kind, model)
    point, restored = ravel_pytree(parameters)
    direction = jnp.asarray(RNG.normal(size=point.shape), point.dtype)
    line = line_of(objective, restored, parameters, often=often)(point, direction)
    for step in (0.0, 0.3, 2.0):
        value, slope, kept = line.look(jnp.asarray(step))
        expected, gradient = jax.value_and_grad(lambda v: objective(restored(v)))(point + step * direction)
        np.testing.assert_allclose(value, expected, rtol=2e-5)
        np.testing.assert_allclose(slope, gradient @ direction, rtol=2e-4, atol=1e-5)
        np.testing.assert_allclose(line.gradient(kept, jnp.asarray(step)), gradient, rtol=2e-4, atol=2e-6)


def test_a_look_along_a_linear_network_costs_no_product_with_the_data() -> None:
    """What is kept is as large as the outputs; of another network, or where one look is enough, it is the gradient."""
    kept = {}
    for name, model, often in (("straight", LINEAR, True), ("once", LINEAR, False), ("bent", BENT, True)):
        objective, parameters = _objective("labels", model)
        point, restored = ravel_pytree(parameters)
        line = line_of(objective, restored, parameters, often=often)(point, jnp.ones_like(point))
        kept[name] = line.look(jnp.ones(()))[2].shape
        program = str(jax.make_jaxpr(line.look)(jnp.ones(())))
        assert ("dot_general" in program) == (name != "straight")
        if name != "straight":
            assert kept[name] == point.shape
    assert kept["straight"] == (1, COUNT)
