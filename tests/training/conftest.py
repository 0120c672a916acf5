"""Small problems that the tests of training share, so that they also share compiled programs."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from gradwise import defaults
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Reshuffled
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.runtime import keys
from gradwise.specs.dataset import Classes, Column, Dataset, Numbers
from gradwise.specs.recipe import Recipe
from gradwise.training.state import Problem, State, init
from gradwise.training.stopping import Patience

TRAIN, VALID, WIDTH, CLASSES = 37, 20, 4, 3


def _blobs(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    targets = draw.integers(0, CLASSES, count)
    centres = np.random.default_rng(0).normal(size=(CLASSES, WIDTH))
    return (centres[targets] + draw.normal(size=(count, WIDTH))).astype(np.float32), targets.astype(np.int32)


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    """A recipe small enough for a test; a validation every 24 examples or so."""
    return defaults.classification(
        batches=Reshuffled(8),
        model=Mlp(widths=(8,), activation=Tanh(), dropout=0.0),
        optimiser=Sgd(learning_rate=0.1),
        stopping=Patience(initial_examples=100, initial_epochs=0, spacing=1.0, least_examples=1, epochs=20),
    )


@pytest.fixture(scope="session")
def start(recipe: Recipe) -> Callable[..., tuple[Problem, State]]:
    """Makes a problem and its first state: 37 examples to learn from, 20 to choose by, other parts as given."""

    def make(
        *, train: int = TRAIN, valid: int = VALID, seed: int = 0, weights: Any = (None, None), **parts: Any
    ) -> tuple[Problem, State]:
        import dataclasses

        chosen = dataclasses.replace(recipe, **parts)
        examples = []
        for count, number, weight in ((train, 1, weights[0]), (valid, 2, weights[1])):
            inputs, targets = _blobs(count, number)
            given = None if weight is None else jnp.asarray(weight, jnp.float32)
            examples.append(Examples(jnp.asarray(inputs), jnp.asarray(targets), given))
        return init(chosen, *examples, outputs=CLASSES, classes=CLASSES, key=keys.from_seed(seed))

    return make


def _bundled(name: str) -> Dataset:
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")()
    columns = tuple(Column(str(feature)) for feature in bunch.feature_names)
    if name == "diabetes":
        return Dataset(bunch.data, bunch.target[:, None].astype(float), Numbers(), columns, name=name)
    return Dataset(bunch.data, bunch.target, Classes(np.asarray(bunch.target_names)), columns, name=name)


@pytest.fixture(scope="session")
def bundled() -> Callable[[str], Dataset]:
    """A data set that comes with scikit-learn."""
    return _bundled


@pytest.fixture(scope="session")
def iris() -> Dataset:
    return _bundled("iris")


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return _bundled("digits")
