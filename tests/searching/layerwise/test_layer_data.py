"""The examples of each level and of fine-tuning, here and in a process that was told of them."""

import dataclasses
import pickle

import jax.numpy as jnp
import numpy as np
import pytest

from gradwise import defaults
from gradwise.data.scaling import NoScaling, UnitRange
from gradwise.data.splits import HoldOut
from gradwise.models.activations import Sigmoid
from gradwise.models.mlp import Layer, Mlp
from gradwise.runtime import keys
from gradwise.searching.layerwise.layer_data import LayerData, split_for_layers
from gradwise.searching.running.evaluation_data import WHOLE
from gradwise.specs.dataset import Classes, Dataset


def _dataset(unknown: int) -> Dataset:
    random = np.random.default_rng(0)
    targets = random.integers(0, 3, 40)
    targets[:unknown] = -1
    return Dataset(random.normal(size=(40, 5)), targets, Classes(np.arange(3)))


def _data(unknown: int = 0) -> LayerData:
    recipe = defaults.classification(split=HoldOut(valid=0.25, test=0.25), scaler=UnitRange(together=True))
    return split_for_layers(recipe, _dataset(unknown), keys.from_seed(4))[0]


def _stack(widths: tuple[int, ...]) -> tuple[Layer, ...]:
    network = Mlp(widths=widths, activation=Sigmoid(), dropout=0.0).build((5,), 3, key=keys.from_seed(1))
    return tuple(network.layers[: len(widths)])


def test_codes_are_those_of_their_stack_in_whatever_process() -> None:
    data = dataclasses.replace(_data(), stacks=((), _stack((4,)), _stack((4, 2))))
    other = pickle.loads(pickle.dumps(data))
    assert jnp.array_equal(data.codes(0)[0], data.train.inputs)
    for number, width in enumerate((5, 4, 2)):
        placed = [one.place(NoScaling(), ("codes", number)) for one in (data, other)]
        for (train, valid), part in zip(placed, (data, other), strict=True):
            assert train.inputs.shape == (20, width)
            assert valid.inputs.shape == (10, width)
            assert jnp.array_equal(train.targets, part.train.targets)
        assert jnp.array_equal(placed[0][0].inputs, placed[1][0].inputs)
    layer = data.stacks[1][0]
    by_hand = 1 / (1 + np.exp(-(np.asarray(data.valid.inputs) @ np.asarray(layer.weight).T + np.asarray(layer.bias))))
    np.testing.assert_allclose(data.codes(1)[1], by_hand, atol=1e-6)
    assert data.codes(1)[0] is data.codes(1)[0]  # computed once
    assert jnp.array_equal(other.key, data.key)


@pytest.mark.parametrize("unknown", [0, 8])
def test_levels_learn_from_all_rows_and_fine_tuning_from_those_with_a_target(unknown: int) -> None:
    data = _data(unknown)
    level, _ = data.place(NoScaling(), ("codes", 0))
    tuning, judged = data.place(NoScaling(), WHOLE)
    assert len(level) == len(tuning) + unknown
    assert int(jnp.sum(level.targets < 0)) == unknown
    assert int(jnp.sum(tuning.targets < 0)) == int(jnp.sum(judged.targets < 0)) == 0
    assert len(tuning) == data.labelled
