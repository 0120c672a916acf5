"""Small predictors of every kind, each with raw rows as a user has them and the same rows encoded.

What is exported does not depend on how well a network was trained, so these are built and then moved away from where
training starts, where slopes and factors are all 1.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest

from gradwise import defaults
from gradwise.data.reading.new_rows import read_rows
from gradwise.data.reading.tables import from_frame
from gradwise.data.scaling import Automatic
from gradwise.models.activations import Gelu
from gradwise.models.convolution.convolutional import Convolutional
from gradwise.models.convolution.pooling import MaxPool
from gradwise.models.input_stage import Embedded, PeriodicRectified, PiecewiseLinear
from gradwise.models.mlp import BatchNorm, LayerNorm, Mlp
from gradwise.models.shared_weights import SharedWeights
from gradwise.specs.adapters import BuiltModel
from gradwise.specs.dataset import Classes, Dataset, Inputs, Labels, Numbers
from gradwise.specs.networks import as_network
from gradwise.specs.paths import replace
from gradwise.specs.recipe import Recipe
from gradwise.training.committee import Committee
from gradwise.training.predictor import AbstractPredictor, Predictor


@dataclasses.dataclass(frozen=True)
class Case:
    """A predictor, and rows to predict: a data frame, or an array of inputs."""

    predictor: AbstractPredictor
    rows: Any

    @property
    def encoded(self) -> np.ndarray:
        return np.asarray(read_rows(self.rows, self.predictor.columns, self.predictor.shape).inputs, np.float64)

    @property
    def wanted(self) -> np.ndarray:
        return self.predictor.predict(self.encoded)


def built(recipe: Recipe, dataset: Dataset, seed: int = 0) -> Predictor:
    """A predictor of this recipe as training would begin it, every parameter moved at random."""
    scaler = recipe.scaler.fit(dataset.inputs, dataset.columns)
    inputs = jnp.asarray(scaler.apply(dataset.inputs))
    model = recipe.model.for_inputs(scaler.layout(dataset.shape))
    network = model.build(inputs.shape[1:], dataset.task.outputs, key=jr.key(seed))
    network = model.started(network, inputs)
    leaves, structure = jax.tree.flatten(network)
    draw = np.random.default_rng(seed)
    moved = [
        jnp.asarray(np.asarray(leaf + 0.2 * draw.normal(size=leaf.shape), np.float32))
        if eqx.is_inexact_array_like(leaf) and hasattr(leaf, "shape")
        else leaf
        for leaf in leaves
    ]
    network = jax.tree.unflatten(structure, moved)
    network = network.calibrate(inputs) if as_network(network).needs_calibration else network
    units = np.arange(1.0, 1.0 + dataset.task.outputs)
    about = (dataset.task, dataset.columns, dataset.shape)
    return Predictor(scaler, network, recipe.criterion, 1.3, 100.0 * units, 50.0 * units, *about)


def houses(rows: int) -> pd.DataFrame:
    """Numbers, a category of few values, one of many, true or false, and dates with times; some values missing."""
    draw = np.random.default_rng(0)
    built = pd.Timestamp("2001-01-01") + pd.to_timedelta(draw.integers(0, 200_000, rows), unit="h")
    frame = pd.DataFrame(
        {
            "size": draw.uniform(20, 200, rows).round(1),
            "rooms": draw.integers(1, 9, rows),
            "town": draw.choice(["Bath", "Leeds", "York"], rows),
            "street": draw.choice([f"street {n}" for n in range(14)], rows),
            "garden": draw.choice([True, False], rows),
            "built": pd.Series(built).dt.strftime("%Y-%m-%d %H:%M"),
        }
    )
    frame.loc[::17, "size"] = np.nan
    frame.loc[::19, "street"] = None
    return frame


def _table_case(scaler: Any = None) -> Case:
    frame = houses(200)
    encoded = from_frame(frame)
    targets = ((frame["town"] == "Bath") | (frame["size"] > 120)).to_numpy().astype(np.int64)
    dataset = Dataset(encoded.inputs, targets, Classes(np.array(["dear", "cheap"])), encoded.columns)
    recipe = defaults.table("classes", 200)
    recipe = replace(recipe, "model.widths", (16, 16))
    recipe = recipe if scaler is None else dataclasses.replace(recipe, scaler=scaler)
    rows = houses(40)
    rows.loc[1, "town"], rows.loc[2, "street"], rows.loc[3, "built"] = "Paris", "street 99", None
    rows.loc[4, "town"], rows.loc[5, "built"], rows.loc[6, "built"] = None, "2030-12-31", "2002-03-01T07:15:30"
    return Case(built(recipe, dataset), rows)


def mixed() -> Case:
    return _table_case()


def normal_scores() -> Case:
    """Columns through a piecewise linear map, categories one-hot, as the general recipe has them."""
    return _table_case(Automatic())


def _diabetes() -> tuple[Recipe, Dataset]:
    from sklearn.datasets import load_diabetes

    frame = load_diabetes(as_frame=True, scaled=False)
    encoded = from_frame(frame.data)
    dataset = Dataset(encoded.inputs, frame.target.to_numpy(float)[:, None], Numbers(), encoded.columns)
    return defaults.table("numbers", len(dataset)), dataset


def _frame_of(dataset: Dataset) -> pd.DataFrame:
    frame = pd.DataFrame(dataset.inputs[:50], columns=[column.name for column in dataset.columns])
    frame.iloc[3, 2] = np.nan
    return frame


def numbers() -> Case:
    recipe, dataset = _diabetes()
    return Case(built(recipe, dataset), _frame_of(dataset))


def several_numbers() -> Case:
    """Two targets, bins instead of waves, one network for several members."""
    recipe, dataset = _diabetes()
    targets = np.concatenate([dataset.targets, -dataset.targets], axis=1)
    dataset = dataclasses.replace(dataset, targets=targets, task=Numbers(("up", "down")))
    mlp = Mlp(widths=(8, 8), inputs=Embedded(numbers=PiecewiseLinear(bins=4)), activation=Gelu())
    recipe = dataclasses.replace(recipe, model=SharedWeights(mlp, members=3))
    return Case(built(recipe, dataset), _frame_of(dataset))


def _images() -> Dataset:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return Dataset(bunch.images.astype(np.float64), bunch.target, Classes(np.arange(10)))


def images() -> Case:
    dataset = _images()
    return Case(built((defaults.classification()), dataset), dataset.inputs[:40])


def normalised() -> Case:
    """Batch normalisation, with calibrated statistics, and residual connections."""
    dataset = _images().take(np.arange(300))
    recipe = defaults.classification(model=Mlp((16, 16), normalisation=BatchNorm(), residual=True))
    return Case(built(recipe, dataset), dataset.inputs[:40])


class _Convolutional(eqx.Module):
    """A user's own network: convolutions, pooling, attention to a mean, a loop over rows."""

    first: eqx.nn.Conv2d
    second: eqx.nn.Conv2d
    pool: eqx.nn.MaxPool2d
    mean: eqx.nn.AvgPool2d
    cell: eqx.nn.GRUCell
    norm: eqx.nn.LayerNorm
    last: eqx.nn.Linear

    def __init__(self, key: Any) -> None:
        keys = jr.split(key, 4)
        self.first = eqx.nn.Conv2d(1, 4, 3, padding=1, key=keys[0])
        self.second = eqx.nn.Conv2d(4, 4, 3, stride=2, groups=2, key=keys[1])
        self.pool, self.mean = eqx.nn.MaxPool2d(2, 2), eqx.nn.AvgPool2d(2, 1)
        self.cell = eqx.nn.GRUCell(8, 4, key=keys[2])
        self.norm = eqx.nn.LayerNorm(4)
        self.last = eqx.nn.Linear(8, 10, key=keys[3])

    def __call__(self, x: Any) -> Any:
        seen = jax.nn.gelu(self.mean(self.pool(self.first(x[None]))), approximate=False)
        seen = jax.nn.silu(self.second(jnp.pad(seen, ((0, 0), (0, 1), (0, 1)))))
        read, _ = jax.lax.scan(lambda state, row: (self.cell(row, state), None), jnp.zeros(4), x)
        return self.last(jnp.concatenate([seen.max((1, 2)), self.norm(read)]))


def own_network() -> Case:
    dataset = _images().take(np.arange(200))
    recipe = defaults.classification(model=BuiltModel(_Convolutional(jr.key(0))))
    return Case(built(recipe, dataset), dataset.inputs[:40])


def filters() -> Case:
    """Layers of filters, shared and of each place, pooled, normalised, and residual."""
    dataset = _images().take(np.arange(200))
    same = {"widths": (6,), "normalisation": BatchNorm(), "dropout": 0.0}
    shared = Convolutional(channels=(4, 4), repeats=2, residual=True, pooling=MaxPool(), **same)
    recipes = [
        defaults.classification(model=one) for one in (shared, Convolutional((3,), stride=2, shared=False, **same))
    ]
    members = tuple(built(recipe, dataset) for recipe in recipes)
    return Case(Committee(members), dataset.inputs[:40])


def committee() -> Case:
    """Several networks for one table, with unequal weights and a temperature."""
    case = mixed()
    frame = houses(200)
    encoded = from_frame(frame)
    targets = (frame["town"] == "Bath").to_numpy().astype(np.int64)
    dataset = Dataset(encoded.inputs, targets, Classes(np.array(["dear", "cheap"])), encoded.columns)
    recipe = replace(defaults.table("classes", 200), "model.widths", (8,))
    embedded = replace(recipe, "model.inputs", Embedded(numbers=PeriodicRectified(frequencies=4, size=2)))
    members = (case.predictor, built(recipe, dataset, 1), built(embedded, dataset, 2))
    assert all(member.columns == members[0].columns for member in members)
    return Case(Committee(members, 1.7, (0.5, 0.3, 0.2)), case.rows)  # type: ignore[arg-type]


def labels() -> Case:
    draw = np.random.default_rng(3)
    inputs = draw.normal(size=(120, 5))
    targets = (inputs[:, :3] + 0.1 * draw.normal(size=(120, 3)) > 0).astype(float)
    recipe = defaults.multilabel(model=Mlp((8,), normalisation=LayerNorm()))
    return Case(built(recipe, Dataset(inputs, targets, Labels(("a", "b", "c")))), inputs[:30])


def features() -> Case:
    """What a learner without a target computes."""
    case = images()
    units = {"shift": np.zeros(1), "scale": np.ones(1), "task": Inputs()}
    return Case(dataclasses.replace(case.predictor, **units), case.rows)  # type: ignore[type-var]


QUICK = (mixed, normal_scores, numbers, images, own_network, filters, committee, labels, features)
SLOW = (several_numbers, normalised)
MAKERS: dict[str, Callable[[], Case]] = {made.__name__: made for made in (*QUICK, *SLOW)}


@pytest.fixture(
    scope="session",
    params=[pytest.param(made.__name__, marks=[pytest.mark.slow] * (made in SLOW)) for made in (*QUICK, *SLOW)],
)
def case(request: pytest.FixtureRequest) -> Case:
    return MAKERS[request.param]()
