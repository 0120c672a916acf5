"""What the contracts themselves do: optional abilities have defaults, so that a part states only what it can."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise.curvature.objective import Examples
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import AbstractCriterion, AbstractOptimiser, AbstractStopping
from gradwise.specs.dataset import Classes, Numbers


class Squared(AbstractCriterion):
    """The least that a criterion must say."""

    def __call__(self, model: Any, batch: Any, *, key: Any) -> Any:
        return jnp.mean(self.examples(model, batch.inputs, batch.targets)[0]), {}

    def examples(self, model: Any, inputs: jax.Array, targets: jax.Array) -> Any:
        errors = (jax.vmap(model)(inputs)[:, 0] - targets) ** 2
        return errors, 0.5 * errors


def test_a_criterion_of_two_methods_can_do_nothing_special() -> None:
    criterion, inputs, targets = Squared(), jnp.arange(6.0).reshape(3, 2), jnp.asarray([1.0, 0.0, 2.0])
    assert criterion.learns_from == "targets"
    criterion.check_task(Numbers())
    with pytest.raises(RequestError, match="cannot say how outputs become classes"):
        criterion.check_task(Classes(np.arange(2)))
    criterion.check_network(jnp.tanh)
    criterion.check_inputs(inputs)
    assert criterion.begin(jnp.tanh, inputs, key=jax.random.key(0)) is None
    assert (criterion.measured(jnp.tanh), criterion.measures(jnp.tanh, inputs)) == ((), {})
    assert criterion.decode(jnp.tanh, targets) is None
    np.testing.assert_array_equal(criterion.link(targets), targets)
    assert "Squared gives one number for a batch" in criterion.not_summed()
    with pytest.raises(NotImplementedError, match="one number for a batch"):
        criterion.of_output(targets, targets)
    valid = Examples(inputs, targets)
    judged = criterion.judge(jnp.tanh, valid, valid)
    expected = criterion.examples(jnp.tanh, inputs, targets)
    np.testing.assert_array_equal(judged.score, expected[0])
    np.testing.assert_array_equal(judged.loss, expected[1])


@pytest.mark.parametrize("part", [AbstractOptimiser, AbstractStopping])
def test_a_contract_alone_is_no_part(part: type) -> None:
    with pytest.raises(TypeError, match="abstract"):
        part()
