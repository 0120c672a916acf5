"""The user's own pieces: a built module as a model, a plain function as a criterion."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise.criteria.losses import SoftmaxLoss
from gradwise.criteria.supervised import Supervised
from gradwise.models.mlp import Mlp
from gradwise.runtime.errors import RequestError
from gradwise.specs.adapters import BuiltModel, FunctionCriterion, OutputCriterion, as_criterion, as_model
from gradwise.specs.contracts import Batch
from gradwise.specs.dataset import Classes, Labels, Numbers

KEY = jax.random.key(0)
NETWORK = eqx.nn.MLP(3, 2, 4, 1, key=KEY)


def squared(model: Any, batch: Batch, key: Any) -> Any:
    errors = jax.vmap(model)(batch.inputs) - batch.targets
    return jnp.sum(batch.weights[:, None] * errors**2) / jnp.sum(batch.weights)


def test_a_built_module_is_where_training_starts() -> None:
    spec = as_model(NETWORK)
    assert spec.build((3,), 2, key=jax.random.key(9)) is NETWORK
    assert as_model(Mlp()) == Mlp()


@pytest.mark.parametrize(
    ("network", "inputs", "outputs", "words"),
    [
        (NETWORK, (3,), 5, r"returns shape \(2,\) for one example, but the task needs \(5,\)"),
        (NETWORK, (4,), 2, r"failed on an example of shape \(4,\)"),
        (NETWORK, (2, 3), 2, r"failed on an example of shape \(2, 3\)"),
        (lambda x: (x, x), (3,), 3, r"returns shape tuple"),
        (lambda x: x.sum(), (3,), 1, r"returns shape \(\)"),
        (lambda x, y: x, (3,), 3, "failed on an example"),
    ],
)
def test_a_module_that_does_not_fit_is_refused_in_one_line(
    network: Any, inputs: tuple[int, ...], outputs: int, words: str
) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        BuiltModel(network).build(inputs, outputs, key=KEY)
    assert "\n" not in str(caught.value)


def test_a_module_with_dropout_or_a_key_is_taken() -> None:
    sequence = eqx.nn.Sequential([eqx.nn.Linear(3, 2, key=KEY), eqx.nn.Dropout(0.5)])
    assert BuiltModel(sequence).build((3,), 2, key=KEY) is sequence


def test_a_function_is_a_criterion_and_scores_each_example_alone() -> None:
    criterion = as_criterion(squared)
    x, y = jax.random.normal(KEY, (6, 3)), jax.random.normal(KEY, (6, 2))
    weights = jnp.ones(6)
    total, terms = criterion(NETWORK, Batch(x, y, weights, weights, jnp.asarray(6.0)), key=KEY)
    score, loss = criterion.examples(NETWORK, x, y)
    expected = np.sum((np.asarray(jax.vmap(NETWORK)(x)) - np.asarray(y)) ** 2, axis=1)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_array_equal(score, loss)
    np.testing.assert_allclose(total, expected.mean(), rtol=1e-5)
    assert terms == {}
    np.testing.assert_array_equal(criterion.link(jnp.arange(3.0)), jnp.arange(3.0))


def test_a_function_that_returns_no_single_number_is_refused() -> None:
    batch = Batch(jnp.ones((2, 3)), jnp.ones((2, 2)), jnp.ones(2), jnp.ones(2), jnp.asarray(2.0))
    with pytest.raises(RequestError, match=r"must return one number; it returned shape \(2,\)"):
        FunctionCriterion(lambda model, batch, key: jnp.ones(2))(NETWORK, batch, key=KEY)


def test_a_plain_function_learns_numbers_only() -> None:
    criterion = as_criterion(squared)
    criterion.check_task(Numbers())
    for task in (Classes(np.arange(2)), Labels(("a",))):
        with pytest.raises(RequestError, match="plain loss function") as caught:
            criterion.check_task(task)
        assert "\n" not in str(caught.value)


def test_a_spec_stays_itself_and_other_things_are_refused() -> None:
    criterion = Supervised(SoftmaxLoss())
    assert as_criterion(criterion) is criterion
    for adapt in (as_model, as_criterion):
        with pytest.raises(TypeError, match="got an object of type int"):
            adapt(3)


# --- `loss(output, target)`


def absolute(output: Any, target: Any) -> Any:
    return jnp.sum(jnp.abs(output - target))


def test_a_function_of_two_arguments_speaks_of_one_example() -> None:
    """The criterion is the weighted mean over the slots; a score is the loss of an example, without its weight."""
    criterion = as_criterion(absolute)
    assert isinstance(criterion, OutputCriterion)
    assert isinstance(as_criterion(squared), FunctionCriterion)
    x, y = jax.random.normal(KEY, (6, 3)), jax.random.normal(jax.random.key(1), (6, 2))
    weights = jnp.asarray([1.0, 2.0, 0.5, 1.0, 1.0, 0.0])
    total, terms = criterion(NETWORK, Batch(x, y, weights, jnp.ones(6), jnp.asarray(6.0)), key=KEY)
    expected = np.abs(np.asarray(jax.vmap(NETWORK)(x)) - np.asarray(y)).sum(1)
    np.testing.assert_allclose(total, (expected * np.asarray(weights)).sum() / 6, rtol=1e-5)
    for name in ("loss", "score"):
        np.testing.assert_allclose(terms[name], expected, rtol=1e-5)
    for values in criterion.examples(NETWORK, x, y):
        np.testing.assert_allclose(values, expected, rtol=1e-5)
    np.testing.assert_allclose(criterion.of_output(jnp.asarray([1.0, 2.0]), jnp.asarray([3.0, 5.0])), 5.0)
    assert float(criterion.of_parameters(NETWORK)) == 0.0
    assert criterion.not_summed() == ""
    assert criterion.curvature_root() is None
    np.testing.assert_array_equal(criterion.link(jnp.arange(2.0)), jnp.arange(2.0))


def test_dropout_acts_in_training_and_not_on_scores() -> None:
    network = eqx.nn.Sequential([eqx.nn.Linear(3, 2, key=KEY), eqx.nn.Dropout(0.5)])
    criterion = OutputCriterion(absolute)
    x, y, ones = jnp.ones((4, 3)), jnp.zeros((4, 2)), jnp.ones(4)
    batch = Batch(x, y, ones, ones, jnp.asarray(4.0))
    totals = {float(criterion(network, batch, key=jax.random.key(n))[0]) for n in range(4)}
    assert len(totals) > 1
    losses, _ = criterion.examples(network, x, y)
    np.testing.assert_allclose(losses, np.abs(np.asarray(network.layers[0](x[0]))).sum(), rtol=1e-5)


def test_a_loss_of_an_output_must_be_one_number_and_learns_numbers() -> None:
    criterion = as_criterion(lambda output, target: output - target)
    with pytest.raises(RequestError, match=r"`loss\(output, target\)` must return one number.*shape \(2,\)") as caught:
        criterion.of_output(jnp.ones(2), jnp.ones(2))
    assert "\n" not in str(caught.value)
    criterion.check_task(Numbers())
    with pytest.raises(RequestError, match="plain loss function"):
        criterion.check_task(Classes(np.arange(2)))


def test_a_callable_without_a_signature_takes_a_batch() -> None:
    assert isinstance(as_criterion(min), FunctionCriterion)
