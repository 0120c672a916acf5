"""Small problems that the tests of training share, so that they also share compiled programs."""

import dataclasses
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
from gradwise.records.fit import Fit
from gradwise.runtime import keys
from gradwise.specs.dataset import Classes, Column, Dataset, Numbers
from gradwise.specs.recipe import Recipe
from gradwise.training.state import Problem, State, init
from gradwise.training.stopping import Patience
from gradwise.training.train import train

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
        chosen = dataclasses.replace(recipe, **parts)
        examples = []
        for count, number, weight in ((train, 1, weights[0]), (valid, 2, weights[1])):
            inputs, targets = _blobs(count, number)
            given = None if weight is None else jnp.asarray(weight, jnp.float32)
            examples.append(Examples(jnp.asarray(inputs), jnp.asarray(targets), given))
        return init(chosen, *examples, outputs=CLASSES, classes=CLASSES, key=keys.from_seed(seed))

    return make


@pytest.fixture(scope="session")
def mixed() -> Dataset:
    """Two numbers, one with holes, a category of three values and one of twenty; the class follows from them."""
    draw = np.random.default_rng(7)
    inputs = np.concatenate(
        [draw.normal(size=(120, 2)), draw.integers(0, 3, (120, 1)), draw.integers(0, 20, (120, 1))], 1
    )
    targets = ((inputs[:, 0] + inputs[:, 2] + (inputs[:, 3] > 9)) > 1.5).astype(np.int64)
    inputs[::9, 1] = np.nan
    kinds = ("number", "number", "category", "category")
    words = ((), (), tuple("abc"), tuple(f"v{number}" for number in range(25)))
    columns = tuple(Column(f"x{n}", kind, names) for n, (kind, names) in enumerate(zip(kinds, words, strict=True)))
    return Dataset(inputs, targets, Classes(np.asarray(["no", "yes"])), columns, name="mixed")


@pytest.fixture(scope="session")
def table_recipe() -> Recipe:
    """The recipe for tables, with a small network and a short run."""
    recipe = defaults.table("classes")
    model = dataclasses.replace(recipe.model, widths=(8, 8))
    stopping = dataclasses.replace(recipe.stopping, epochs=12.0)
    return dataclasses.replace(recipe, model=model, stopping=stopping, batches=Reshuffled(16))


@pytest.fixture(scope="session")
def table_fit(table_recipe: Recipe, mixed: Dataset) -> Fit:
    return train(table_recipe, mixed, key=keys.from_seed(1))


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
