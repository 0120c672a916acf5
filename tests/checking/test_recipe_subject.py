"""A recipe with its data is checked as `fit` would train it: the same parts, weights, batches and numbers."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import gradwise
from gradwise.checking.recipe_subject import PreparedRecipe, prepare_recipe
from gradwise.checking.rehearsal import rehearse
from gradwise.data.batches import Reshuffled
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.training.update import step

RECIPE = gradwise.defaults.classification(
    model=Mlp(widths=(8,), dropout=0.0), optimiser=Sgd(learning_rate=0.1), batches=Reshuffled(size=16)
)


@pytest.fixture(scope="module")
def prepared() -> PreparedRecipe:
    return prepare_recipe(RECIPE, gradwise.read("iris"), key=jr.key(3))


@pytest.mark.slow
def test_the_subject_is_what_the_first_update_sees(prepared: PreparedRecipe) -> None:
    subject, problem = prepared.subject, prepared.problem
    rows, present, _ = problem.recipe.batches.indices(jnp.arange(1), len(problem.train), key=problem.key)
    batch = gradwise.gather_batch(problem, rows[0], present[0])
    np.testing.assert_array_equal(subject.batch.inputs, batch.inputs)
    noise = jr.fold_in(problem.key, 0)
    expected = step(problem, prepared.state, batch)[1]["total"]
    assert float(subject.value(subject.parameters, subject.batch, noise)) == pytest.approx(float(expected), rel=1e-5)
    assert subject.task == "classes"
    assert subject.outputs is not None
    assert subject.outputs(subject.parameters, subject.batch.inputs, noise).shape == (16, 3)


def test_a_rehearsal_is_the_training_itself(prepared: PreparedRecipe) -> None:
    seen = rehearse(prepared.subject, updates=3, key=jr.key(0))
    state = prepared.state
    for batch in prepared.subject.batches[:3]:
        state, _ = step(prepared.problem, state, batch)
    for ours, theirs in zip(jax.tree.leaves(seen.end), jax.tree.leaves(state.parameters), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    assert not seen.stand_in


@pytest.mark.slow
def test_features_are_prepared_without_targets() -> None:
    made = prepare_recipe(gradwise.defaults.features("plain", 4), gradwise.read("iris"), key=jr.key(0))
    assert made.subject.task == "inputs"
    assert np.isfinite(float(made.subject.value(made.subject.parameters, made.subject.batch, jr.key(1))))
