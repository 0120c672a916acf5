"""Trainings that share their examples: the same results together and alone."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from gradwise import defaults
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Reshuffled
from gradwise.data.scaling import NoScaling
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.runtime import keys
from gradwise.searching.running.jobs import Job
from gradwise.searching.running.population_size import Given
from gradwise.searching.running.shared_data_training import train_together
from gradwise.training.stopping import Off


@pytest.mark.slow
def test_together_is_as_alone_and_a_recipe_without_a_model_is_refused() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(120, 6)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] > 0).astype(np.int32)
    train, valid = (Examples(jnp.asarray(x[part]), jnp.asarray(y[part])) for part in (slice(80), slice(80, None)))
    recipe = defaults.classification(
        model=Mlp(widths=(8,), dropout=0.0),
        optimiser=Sgd(learning_rate=0.05),
        batches=Reshuffled(size=10),
        stopping=Off(epochs=4.0),
        scaler=NoScaling(),
    )
    faster = dataclasses.replace(recipe, optimiser=Sgd(learning_rate=0.2))
    other = dataclasses.replace(recipe, model=Mlp(widths=(4,), dropout=0.0))
    wrong = dataclasses.replace(recipe, model="no model")
    jobs = [Job(0, recipe, 0), Job(1, faster, 1), Job(2, other, 2)]
    arguments = {"outputs": 2, "key": keys.from_seed(0)}
    together = {done.number: done for done in train_together(jobs, train, valid, slots=Given(2), **arguments)}
    alone = {
        done.number: done for job in jobs for done in train_together([job], train, valid, slots=Given(1), **arguments)
    }
    assert set(together) == set(alone) == {0, 1, 2}
    for number in together:
        np.testing.assert_allclose(together[number].loss, alone[number].loss, rtol=1e-4)
        assert together[number].outcome == "finished"
    with pytest.raises(TypeError, match="must be a spec"):
        list(train_together([Job(3, wrong, 3)], train, valid, **arguments))
