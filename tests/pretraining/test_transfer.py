"""Layers of another run (rows A9, G7): what is taken, what is new, what is refused, and what it gains."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits

import gradwise as gw
from gradwise.pretraining.transfer import find_seen_rows, lower_layers, predictor_of, slower_below
from gradwise.runtime.errors import RequestError
from gradwise.specs.paths import get

SHORT = {"stopping": "Off", "stopping.epochs": 30}
DIGITS, KINDS = load_digits(return_X_y=True)
PIXELS = DIGITS.reshape(-1, 8, 8).astype(np.uint8)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A network that tells 900 digits apart, in layers of 40 and 20 units."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    options: dict[str, Any] = {"set": {**SHORT, "model.widths": "40,20"}, "no_report": True, "no_baselines": True}
    gw.fit(PIXELS[:900], KINDS[:900], out=str(folder), **options)
    return str(folder)


def built(model: Any, outputs: int = 2) -> Any:
    return model.build((8, 8), outputs, key=jax.random.key(3))


def test_lower_layers_give_the_features_of_the_run(source: str) -> None:
    earlier = predictor_of(source)
    x = earlier.scaler.apply(PIXELS[900:905])
    for count, widths in ((0, (40, 20)), (1, (40,)), (2, (40, 20))):
        network = built(gw.Transferred(source, layers=count))
        assert tuple(layer.weight.shape[0] for layer in network.layers) == widths
        h = expected = x.reshape(5, -1)
        for own, theirs in zip(network.layers, lower_layers(earlier)[1], strict=False):
            h, expected = (
                jax.vmap(lambda row, one=one: one(row, key=None))(v) for one, v in ((own, h), (theirs, expected))
            )
        np.testing.assert_array_equal(h, expected)
        assert network.output.weight.shape == (2, widths[-1])
    assert (gw.ScalerOf(source).fit(PIXELS[900:]).apply(PIXELS[900:905]) == x).all()


def test_layers_above_those_taken_are_new(source: str) -> None:
    network = built(gw.Transferred(source, layers=1, above=gw.Mlp(widths=(7, 6), activation=gw.Tanh(), dropout=0.3)))
    assert [layer.weight.shape for layer in network.layers] == [(40, 64), (7, 40), (6, 7)]
    assert network.layers[0].dropout is not None  # as the layers above it
    other = gw.Transferred(source).build((8, 8), 2, key=jax.random.key(4))
    assert not np.array_equal(built(gw.Transferred(source)).output.weight, other.output.weight)
    np.testing.assert_array_equal(other.layers[1].weight, lower_layers(predictor_of(source))[1][1].weight)


def test_what_is_frozen_is_not_trained(source: str) -> None:
    recipe = gw.defaults.classification(
        model=gw.Transferred(source),
        scaler=gw.ScalerOf(source),
        optimiser=slower_below(gw.MovingAverage(gw.Adam()), source, freeze=1),
        stopping=gw.Off(epochs=3.0),
    )
    record = gw.train(recipe, gw.read((PIXELS[900:1000], KINDS[900:1000] % 2)), key=jax.random.key(0))
    now, before = record.predictor.network.layers, lower_layers(predictor_of(source))[1]
    assert np.array_equal(now[0].weight, before[0].weight)
    assert np.array_equal(now[0].bias, before[0].bias)
    assert not np.array_equal(now[1].weight, before[1].weight)


def test_it_is_refused_in_one_line(source: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="nowhere has no model"):
        gw.ScalerOf("nowhere").fit(PIXELS)
    with pytest.raises(RequestError, match="has 2 hidden layers, so 3 cannot be taken"):
        built(gw.Transferred(source, layers=3))
    with pytest.raises(RequestError, match=r"2 hidden layers are taken from .* so 3 cannot be frozen"):
        slower_below(gw.Adam(), source, freeze=3)
    with pytest.raises(RequestError, match=r"shape \(64,\), but those of .* had \(8, 8\)"):
        gw.ScalerOf(source).fit(DIGITS)
    with pytest.raises(RequestError, match="take 64 inputs, but there are 9"):
        gw.Transferred(source).build((9,), 2, key=jax.random.key(0))


def test_columns_must_be_those_of_the_run(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    columns = (gw.Column("a"), gw.Column("b", "category", ("x", "y")))
    inputs = np.stack([random.normal(size=60), random.integers(0, 2, 60)], 1)
    dataset = gw.Dataset(inputs, random.integers(0, 2, 60), gw.Classes(np.arange(2)), columns)
    folder = tmp_path / "table"
    gw.fit(dataset, out=str(folder), set={"stopping.epochs": 1}, no_report=True)
    scaler = gw.ScalerOf(str(folder))
    assert scaler.fit(inputs, columns).apply(inputs[:1]).shape == (1, 3)
    with pytest.raises(RequestError, match=r"column `c` .* stands where .* had `a`"):
        scaler.fit(inputs, (gw.Column("c"), columns[1]))
    with pytest.raises(RequestError, match=r"column `b` has other categories than in .*\(y, z\)"):
        scaler.fit(inputs, (columns[0], gw.Column("b", "category", ("x", "z"))))


def test_rows_that_the_run_learned_from_are_told(source: str) -> None:
    def part(rows: slice) -> Any:
        return gw.Dataset(PIXELS[rows], KINDS[rows], gw.Classes(np.arange(10)))

    assert find_seen_rows(gw.Transferred(source), part(slice(900, 1000))) == ()
    (told,) = find_seen_rows(gw.Transferred(source), part(slice(0, 300)))
    assert (told.level, told.code) == ("warning", "GW201")
    seen, every = told.what.split("on ")[1].split(" of the ")
    assert 210 < int(seen) < 270  # its test set, a fifth, was not used
    assert every.startswith("300 test rows")
    assert find_seen_rows(gw.Mlp(), part(slice(0, 300))) == ()


def test_layers_of_auto_encoders_and_of_transferred_networks_are_taken(source: str, tmp_path: Path) -> None:
    quick = {"stopping": "Off", "stopping.epochs": 1}
    gw.fit(PIXELS[:100], learner="denoising:12", out=str(tmp_path / "code"), set=quick, no_report=True)
    few = PIXELS[900:960], KINDS[900:960] % 2
    first = gw.fit(*few, from_=str(tmp_path / "code"), out=str(tmp_path / "first"), set=quick, no_report=True)
    again = gw.fit(*few, from_=str(tmp_path / "first"), freeze=1, set=quick, no_report=True)
    layers = [model.predictor.network.layers for model in (first, again)]
    assert [len(one) for one in layers] == [1, 1]
    assert np.array_equal(layers[0][0].weight, layers[1][0].weight)


@pytest.fixture(scope="module")
def filters(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A network of 3 and 4 filters, normalised over the batch, and 5 dense units, on 200 digits."""
    folder = tmp_path_factory.mktemp("runs") / "filters"
    model = gw.Convolutional(channels=(3, 4), widths=(5,), normalisation=gw.BatchNorm(), augmentation=gw.Shift(1))
    options: dict[str, Any] = {"set": {"stopping": "Off", "stopping.epochs": 2}, "no_report": True}
    gw.fit(PIXELS[:200], KINDS[:200], model=model, out=str(folder), no_baselines=True, **options)
    return str(folder)


def test_layers_of_filters_give_the_maps_of_the_run(filters: str) -> None:
    """Stage by stage in NumPy's order of things: the layers of the run, then the new ones on what they gave."""
    earlier = predictor_of(filters)
    x = jax.numpy.asarray(earlier.scaler.apply(PIXELS[900:903]))
    kinds = ("ConvolutionLayer", "ConvolutionLayer", "Layer")
    assert tuple(type(layer).__name__ for layer in lower_layers(earlier)[1]) == kinds
    for count, stages, widths in ((1, 1, (7,)), (2, 2, (7,)), (3, 2, (5, 7)), (0, 2, (5, 7))):
        network = built(gw.Transferred(filters, layers=count, above=gw.Mlp(widths=(7,), dropout=0.3)), outputs=3)
        assert len(network.convolutions) == stages
        assert tuple(layer.weight.shape[0] for layer in network.layers) == widths
        assert [layer.dropout is None for layer in network.convolutions] == [True, False][2 - stages :]
        assert all(layer.dropout is not None for layer in network.layers)
        for row in x:
            h = row[..., None]
            for layer in lower_layers(earlier)[1][: count or 3]:
                h = layer(h if h.ndim == 3 and type(layer).__name__ == kinds[0] else h.ravel(), key=None)
            h = network.layers[-1](h.ravel(), key=None)
            np.testing.assert_allclose(network(row), network.output(h), rtol=1e-6, atol=1e-6)


def test_frozen_filters_stay_and_the_others_move(filters: str) -> None:
    few = PIXELS[900:960], KINDS[900:960] % 2
    model = gw.fit(*few, from_=filters, freeze=1, set={"stopping.epochs": 2}, no_report=True, no_baselines=True)
    now, before = model.predictor.network, predictor_of(filters).network
    for name in ("weight", "bias", "norm.gain", "norm.shift"):
        assert np.array_equal(get(now.convolutions[0], name), get(before.convolutions[0], name))
    assert not np.array_equal(now.convolutions[1].weight, before.convolutions[1].weight)
    assert not np.array_equal(now.layers[0].weight, before.layers[0].weight)
    assert now.output.weight.shape == (2, 5)
    assert now.augmentation == before.augmentation
    with pytest.raises(RequestError, match="has 3 hidden layers, so 4 cannot be taken"):
        built(gw.Transferred(filters, layers=4))


def errors_with_and_without(
    x: np.ndarray, y: np.ndarray, test: gw.Dataset, source: str, labels: int, seed: int, **parts: Any
) -> tuple[float, float]:
    """Test errors of a network on the layers of a run and of one alone, from the same labelled rows."""
    rows = np.random.default_rng([seed, labels]).permutation(len(x))[: 2 * labels]
    dataset = gw.Dataset(x[rows], y[rows], test.task, test=test)
    alone = gw.defaults.classification(split=gw.GivenParts(train=labels, valid=labels), **parts)
    taken = dataclasses.replace(
        alone,
        model=gw.Transferred(source),
        scaler=gw.ScalerOf(source),
        optimiser=slower_below(alone.optimiser, source),
    )
    return tuple(float(gw.train(recipe, dataset, key=jax.random.key(seed)).test) for recipe in (taken, alone))  # type: ignore[return-value]


def test_features_that_few_rows_cannot_teach_are_taken_over(tmp_path: Path) -> None:
    """Whether pairs of inputs agree in sign: four such labels from many rows, then one of them from 60."""
    random = np.random.default_rng(0)
    x = random.normal(size=(4000, 8)).astype(np.float32)
    agree = (x[:, 0::2] * x[:, 1::2] > 0).astype(np.int64)
    names = ("first", "second", "third", "fourth")
    many = gw.Dataset(x[:2500], agree[:2500].astype(np.float32), gw.Labels(names))
    recipe = gw.defaults.multilabel(model=gw.Mlp(widths=(64, 8), dropout=0.0), stopping=gw.Off(epochs=60.0))
    record = gw.fit(many, recipe=recipe, out=str(tmp_path / "labels"), no_report=True, no_baselines=True)
    assert record.test < 0.1
    kinds = agree[:, 0]
    test = gw.Dataset(x[3000:], kinds[3000:], gw.Classes(np.arange(2)))
    parts: dict[str, Any] = {"model": gw.Mlp(widths=(64, 8), dropout=0.0), "stopping": gw.Off(epochs=200.0)}
    parts |= {"optimiser": gw.Adam(0.01), "batches": gw.Reshuffled(10)}
    x, kinds = x[2500:3000], kinds[2500:3000]
    for seed in range(2):
        pair = errors_with_and_without(x, kinds, test, str(tmp_path / "labels"), 60, seed, **parts)
        assert pair[0] < pair[1] - 0.1, pair


def shrunk_digits(digits: np.ndarray) -> np.ndarray:
    """Digits cut to their ink and made 16 x 16 pixels, as those of USPS are, in [0, 1]."""
    from PIL import Image

    images = []
    for digit in digits:
        rows, columns = (np.flatnonzero(digit.max(axis) > 20) for axis in (1, 0))
        ink = Image.fromarray(digit[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1])
        images.append(np.asarray(ink.resize((16, 16))))
    return np.stack(images).astype(np.float32) / 255.0


@pytest.mark.slow
def test_layers_of_mnist_help_usps_with_few_labels_paired_over_seeds(data_folder: Path, tmp_path: Path) -> None:
    images = shrunk_digits(gw.read("mnist").inputs[:3000])
    kinds = gw.read("mnist").targets[:3000]
    quick = {"model": "Mlp", "stopping": "Off", "stopping.epochs": 20}
    gw.fit(images, kinds, out=str(tmp_path / "mnist"), set=quick, no_report=True, no_baselines=True)
    with np.load(data_folder / "usps" / "usps.npz") as stored:
        x, test_x = (stored[name].astype(np.float32).reshape(-1, 16, 16) / 2000.0 for name in ("X_train", "X_test"))
        y, test_y = (stored[name].astype(np.int64) for name in ("y_train", "y_test"))
    test = gw.Dataset(test_x, test_y, gw.Classes(np.arange(10)))
    parts: dict[str, Any] = {"stopping": gw.Off(epochs=600.0)}
    few = [errors_with_and_without(x, y, test, str(tmp_path / "mnist"), 50, seed, **parts) for seed in range(3)]
    gains = np.array([alone - taken for taken, alone in few])
    assert gains.mean() > 3 * gains.std(ddof=1) / 3.0**0.5, few
