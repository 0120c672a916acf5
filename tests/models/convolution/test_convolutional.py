"""`Convolutional` as a model like any other: built, refused, fitted, checked, saved, exported."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import pytest

import gradwise as gw
from gradwise.models.convolution.convolutional import Convolutional, check_example
from gradwise.models.convolution.pooling import NoPool
from gradwise.models.initial_weights import FanIn
from gradwise.runtime.errors import RequestError
from gradwise.specs.networks import apply_batch
from gradwise.specs.paths import named_leaves, trainable
from gradwise.testing.contracts import check_model

SMALL = Convolutional(channels=(6, 8), widths=(), dropout=0.0)


def bars(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of a bar somewhere, and whether it lies or stands."""
    draw = np.random.default_rng(seed)
    pictures, lies = draw.normal(0, 0.2, (count, 12, 12)).astype(np.float32), draw.integers(0, 2, count)
    for picture, flat in zip(pictures, lies, strict=True):
        row, column = draw.integers(0, 8, 2)
        picture[(row, slice(column, column + 4)) if flat else (slice(row, row + 4), column)] += 1
    return pictures, lies


@pytest.fixture(scope="module")
def fitted() -> Any:
    return gw.fit(
        *bars(320, 0), model=SMALL, stopping=gw.Off(epochs=16), set={"optimiser.optimiser.learning_rate": 0.01}
    )


def test_a_network_of_filters_learns_from_few_pictures_what_a_perceptron_does_not(fitted: Any) -> None:
    pictures, lies = bars(1000, 1)
    flat = gw.fit(*bars(320, 0), model=gw.Mlp(), stopping=gw.Off(epochs=16))
    errors = [float(np.mean(np.asarray(one.predict(pictures)) != lies)) for one in (fitted, flat)]
    assert errors[0] < 0.1 < 0.3 < errors[1], errors


def test_a_saved_network_predicts_the_same(fitted: Any, tmp_path: Path) -> None:
    pictures, _ = bars(40, 2)
    fitted.save(tmp_path / "run")
    again = gw.load(tmp_path / "run")
    assert np.array_equal(again.predict_proba(pictures), fitted.predict_proba(pictures))
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.slow
def test_a_check_of_a_recipe_finds_nothing_wrong() -> None:
    recipe = gw.defaults.classification(model=SMALL, stopping=gw.Off(epochs=8))
    pictures, lies = bars(240, 0)
    checked = gw.check(recipe, gw.Dataset(pictures, lies, gw.Classes(np.arange(2))))
    assert checked.errors == (), checked.findings


@pytest.mark.slow
def test_penalties_on_units_and_a_monitor_see_the_layers() -> None:
    sparse = gw.Supervised(gw.SoftmaxLoss(), penalties=(gw.L1Codes(0.1, where="convolutions.1"), gw.L2(0.01)))
    found = gw.fit(*bars(80, 0), model=SMALL, criterion=sparse, stopping=gw.Off(epochs=1), watch=1)
    groups = {group.layer for group in found.record.evidence.flow.groups}
    assert {"convolutions.0", "convolutions.1", "output"} <= groups


def test_filters_begin_with_the_scale_of_their_fans() -> None:
    network = Convolutional(channels=(40, 50), kernel=5, initial=FanIn(), widths=()).build((9, 9, 4), 3, key=jr.key(0))
    first, second = (np.asarray(layer.weight) for layer in network.convolutions)
    assert first.shape == (40, 100)
    assert second.shape == (50, 1000)
    gain = 2**0.5
    np.testing.assert_allclose([first.std(), second.std()], gain * np.array([100, 1000]) ** -0.5 / 3**0.5, rtol=0.02)
    assert np.array_equal(network.filters, first)
    glorot = Convolutional(channels=(40,), kernel=5, widths=()).build((9, 9, 4), 3, key=jr.key(0))
    limit = gain * (6 / (100 + 40 * 25)) ** 0.5
    np.testing.assert_allclose(np.abs(glorot.convolutions[0].weight).max(), limit, rtol=0.01)


def test_local_receptive_fields_have_weights_at_each_place() -> None:
    network = Convolutional(channels=(3, 4), shared=False, padding="valid", pooling=NoPool()).build(
        (6, 7), 2, key=jr.key(0)
    )
    assert [layer.weight.shape for layer in network.convolutions] == [(4, 5, 3, 9), (2, 3, 4, 27)]
    assert network.convolutions[0].bias.shape == (4, 5, 3)
    assert network.filters is None
    check_model(Convolutional(channels=(3,), shared=False, widths=()), inputs=(6, 5))


def test_shapes_of_stages() -> None:
    model = Convolutional(channels=(2, 3), repeats=2, stride=2, widths=(7,))
    network = eqx.filter_jit(lambda: model.build((32, 20, 3), 5, key=jr.key(0)))()
    assert [layer.stride for layer in network.convolutions] == [2, 1, 2, 1]
    assert [layer.pooling for layer in network.convolutions] == [NoPool(), gw.MaxPool(), NoPool(), gw.MaxPool()]
    assert network.layers[0].weight.shape == (7, 3 * 2 * 1)
    names = {name for name, _ in named_leaves(trainable(network)[0])}
    assert {"convolutions.0.weight", "layers.0.weight", "output.weight"} <= names
    check_model(model, inputs=(32, 20, 3))
    check_model(Convolutional(channels=(2, 3), dimensions=1), inputs=(9, 2))


def test_off_augmentation_leaves_no_trace() -> None:
    def program(**given: Any) -> str:
        network = Convolutional(channels=(2,), widths=(), dropout=0.0, **given).build((6, 6), 2, key=jr.key(0))
        return str(jax.make_jaxpr(lambda x, key: apply_batch(network, x, key))(np.ones((3, 6, 6)), jr.key(0)))

    assert "random_bits" not in program()
    assert "random_bits" in program(augmentation=gw.Shift(1))


@pytest.mark.parametrize(
    ("shape", "dimensions", "remedy"),
    [
        ((784,), 2, r"Give an array of shape \(n, 28, 28\), use `dimensions=1` for series, or the model `Mlp`"),
        ((10,), 2, r"Give an array of shape \(n, h, w\) or \(n, h, w, c\), or use the model `Mlp`"),
        ((8, 8, 3, 2), 2, r"Give an array of shape \(n, h, w\)"),
        ((8, 8, 3), 1, r"Use `dimensions=2` for pictures"),
    ],
)
def test_inputs_that_are_no_pictures_are_refused_in_one_line(shape: Any, dimensions: int, remedy: str) -> None:
    with pytest.raises(RequestError, match=remedy) as refusal:
        Convolutional(dimensions=dimensions).build(shape, 2, key=jr.key(0))
    assert "\n" not in str(refusal.value)
    assert check_example((8, 9), 2) == ((8, 9), 1)
    assert check_example((8, 9), 1) == ((8,), 9)


def test_what_does_not_fit_is_refused_in_one_line() -> None:
    with pytest.raises(RequestError, match=r"`Convolutional.kernel` 5 does not fit into the map of 2 x 2"):
        Convolutional(kernel=5, padding="valid").build((9, 9), 2, key=jr.key(0))
    with pytest.raises(RequestError, match=r"`Shift.pixels` must be smaller than each side"):
        Convolutional(augmentation=gw.Shift(6)).build((6, 8), 2, key=jr.key(0))
    with pytest.raises(RequestError, match=r"`Convolutional.channels` must be whole numbers of at least 1"):
        Convolutional(channels=())
    with pytest.raises(RequestError, match="784"):
        gw.fit(np.zeros((30, 784), np.uint8), np.arange(30) % 2, model=SMALL)
