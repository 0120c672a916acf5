"""Embeddings of numbers and categories (row G6) against NumPy: values, edges, tables, widths, and what is not there."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.data.category_scaling import Categories, OneHot
from gradwise.data.scaling import Columns, NoScaling
from gradwise.models.input_stage import (
    AbstractInputStage,
    AbstractNumberEmbedding,
    ColumnMaps,
    Direct,
    Embedded,
    InputStage,
    LaidOut,
    NoEmbedding,
    Periodic,
    PeriodicNumbers,
    PeriodicRectified,
    PiecewiseLinear,
    PiecewiseNumbers,
    stage_width,
)
from gradwise.models.mlp import Mlp, MlpNetwork
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import Column, InputLayout
from gradwise.specs.paths import named_leaves, trainable

RNG = np.random.default_rng(0)
MIXED = InputLayout(numbers=3, flags=2, categories=(4, 12))  # 3 + 2 + 2 inputs
X = np.concatenate(
    [
        RNG.normal(size=(20, 3)),
        RNG.integers(0, 2, (20, 2)),
        RNG.integers(0, 5, (20, 1)),  # 4 is the code of a value that is not known
        RNG.integers(0, 13, (20, 1)),
    ],
    axis=1,
).astype(np.float32)
KEY = jr.key(0)


@eqx.filter_jit
def build(spec: AbstractInputStage, layout: InputLayout = MIXED) -> InputStage | None:
    return spec.build(layout, key=KEY)


@eqx.filter_jit
def network_of(model: Mlp, inputs: tuple[int, ...], outputs: int = 3) -> MlpNetwork:
    return model.build(inputs, outputs, key=KEY)


@eqx.filter_jit
def run(module: Any, rows: Any) -> Any:
    return jax.vmap(module)(rows)


def numbers_of(module: Any) -> list[np.ndarray]:
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(module)]


def mapped(features: np.ndarray, maps: ColumnMaps) -> np.ndarray:
    """(n, columns, size): each column's features times its own matrix, written as loops."""
    projection, shift = numbers_of(maps)
    return np.stack([features[:, c] @ projection[c] + shift[c] for c in range(len(shift))], axis=1)


# --- embeddings of numbers


@eqx.filter_jit
def embedding(spec: AbstractNumberEmbedding, columns: int = 3) -> Any:
    return spec.build(columns, key=KEY)


def test_waves_of_each_number_beside_itself() -> None:
    module = embedding(Periodic(frequencies=5, size=2, deviation=0.7))
    assert isinstance(module, PeriodicNumbers)
    x = X[:, :3].astype(np.float64)
    frequency, phase = np.asarray(module.frequency, np.float64), np.asarray(module.phase, np.float64)
    features = np.cos(2 * np.pi * frequency * x[:, :, None] + phase)
    expected = np.concatenate([x[:, :, None], mapped(features, module.maps)], axis=2).reshape(20, 9)
    np.testing.assert_allclose(run(module, X[:, :3]), expected, atol=2e-5)


def test_rectified_waves_stand_for_the_number() -> None:
    module = embedding(PeriodicRectified(frequencies=4, size=3, deviation=1.5))
    x = X[:, :3].astype(np.float64)
    angle = 2 * np.pi * np.asarray(module.frequency, np.float64) * x[:, :, None]
    expected = np.maximum(mapped(np.concatenate([np.sin(angle), np.cos(angle)], axis=2), module.maps), 0).reshape(20, 9)
    found = np.asarray(run(module, X[:, :3]))
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert 0.1 < np.mean(found == 0) < 0.9


def test_first_values_are_as_spread_as_the_papers_say() -> None:
    module = embedding(Periodic(frequencies=64, size=8, deviation=0.3), 200)
    assert np.std(module.frequency) == pytest.approx(0.3, rel=0.02)
    phase = np.asarray(module.phase)
    assert np.abs(phase).max() <= np.pi
    assert np.std(phase) == pytest.approx(2 * np.pi / np.sqrt(12), rel=0.02)
    assert np.std(module.maps.projection) == pytest.approx(1 / 8, rel=0.02)  # 64 features
    assert np.abs(module.maps.shift).max() <= 1 / 8


def piecewise(x: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """How far each of these values of one column has come through each bin, by looking at one bin after the other."""
    found = np.zeros((len(x), len(edges) - 1))
    last = len(edges) - 2
    for b in range(last + 1):
        width = edges[b + 1] - edges[b]
        for row, value in enumerate(x):
            if width <= 0:
                continue
            part = (value - edges[b]) / width
            part = part if part > 0 or b == 0 else 0.0
            found[row, b] = part if part < 1 or b == last else 1.0
    return found


def test_bins_end_at_quantiles_of_the_training_inputs_and_the_outermost_go_on() -> None:
    train = np.concatenate([RNG.normal(size=(101, 2)), np.round(RNG.exponential(size=(101, 1)))], axis=1)
    train = train.astype(np.float32)
    plain = build(Embedded(PiecewiseLinear(bins=4, size=2), factor=False), InputLayout(3, 1))
    stage = plain.started(jnp.asarray(np.concatenate([train, np.ones((101, 1))], axis=1)))
    assert isinstance(stage.numbers, PiecewiseNumbers)
    edges = np.asarray(stage.numbers.edges.value)
    np.testing.assert_allclose(edges, np.percentile(train, [0, 25, 50, 75, 100], axis=0).T, rtol=1e-5)
    assert np.any(edges[:, 1:] == edges[:, :-1])  # the rounded column has an empty bin
    x = np.concatenate([train[:20], [[-9.0, 9.0, -9.0], [9.0, -9.0, 99.0]]]).astype(np.float32)
    features = np.stack([piecewise(x[:, c], edges[c].astype(np.float64)) for c in range(3)], axis=1)
    np.testing.assert_allclose(run(stage.numbers.features, x), features, atol=1e-4)
    assert features[-2, 0, 0] < 0  # below the range, a line
    assert features[-1, 0, -1] > 1  # above it too
    maps = stage.numbers.maps
    expected = np.concatenate([x[:, :, None], mapped(features, maps)], axis=2).reshape(22, 9)
    found = run(stage, np.concatenate([x, np.full((22, 1), 5.0, np.float32)], axis=1))
    np.testing.assert_allclose(found[:, :9], expected, atol=1e-3)
    assert np.all(np.asarray(found)[:, 9] == 5.0)  # the flag as it is


def test_a_piecewise_embedding_is_continuous_at_its_edges() -> None:
    module = embedding(PiecewiseLinear(bins=3, size=2))
    edge = np.linspace(-1, 1, 4)[1:3]
    sides = [run(module, np.repeat(edge[:, None] + step, 3, axis=1).astype(np.float32)) for step in (-1e-5, 1e-5)]
    np.testing.assert_allclose(sides[0], sides[1], atol=1e-3)


def test_only_what_reads_the_training_inputs_is_changed_by_them() -> None:
    for spec in (Embedded(), Embedded(NoEmbedding())):
        stage = build(spec)
        assert stage.started(jnp.asarray(X)) is stage
    model = Mlp(widths=(3,), inputs=Embedded(PiecewiseLinear(bins=2, size=1)))
    network = network_of(model, (7,))
    edges = model.started(network, jnp.asarray(X)).inputs.numbers.edges
    np.testing.assert_allclose(edges.value, np.quantile(X, [0, 0.5, 1], axis=0).T, rtol=1e-6)
    moves, _ = trainable(network)
    assert not any("edges" in name for name, _ in named_leaves(moves))  # measured, never learned


# --- categories


def test_a_category_is_a_row_of_its_table_and_an_unknown_one_begins_at_zero() -> None:
    stage = build(Embedded(NoEmbedding(), category_size=5, factor=False))
    tables = [np.asarray(table) for table in stage.tables]
    assert [table.shape for table in tables] == [(5, 5), (13, 5)]
    assert all(not np.any(table[-1]) for table in tables)
    assert np.std(np.concatenate([table[:-1] for table in tables])) == pytest.approx(1.0, abs=0.2)
    expected = np.concatenate([X[:, :5], tables[0][X[:, 5].astype(int)], tables[1][X[:, 6].astype(int)]], axis=1)
    np.testing.assert_array_equal(run(stage, X), expected)
    strange = X[:1].copy()
    strange[0, 5:] = (4, 12)
    assert not np.any(np.asarray(run(stage, strange))[0, 5:])


def test_every_parameter_has_a_gradient_and_the_unknown_row_is_learned() -> None:
    """One row of a table moves for each code that occurs, and no other."""
    stage = build(Embedded(Periodic(frequencies=3, size=2), category_size=2))
    seen = X.copy()
    seen[:, 6] = np.where(np.arange(20) % 2, 12, 3)
    parameters, rest = trainable(stage)

    @eqx.filter_jit
    def slopes(parameters: Any) -> Any:
        return jax.grad(lambda p: jnp.sum(jax.vmap(eqx.combine(p, rest))(jnp.asarray(seen)) ** 2 + 0.0))(parameters)

    found = dict(named_leaves(slopes(parameters)))
    assert set(found) >= {"numbers.frequency", "numbers.phase", "numbers.maps.projection", "tables.0", "factor"}
    assert all(np.all(np.isfinite(slope)) for slope in found.values())
    assert all(np.any(slope) for slope in found.values())
    moved = np.any(np.asarray(found["tables.1"]), axis=1)
    assert set(np.flatnonzero(moved)) <= {3, 12}
    assert moved[3]


def test_direct_codes_are_what_one_hot_flags_are() -> None:
    """The same weights behind `Categories` and behind `OneHot`: a weight matrix is a table."""
    raw = np.concatenate([RNG.normal(size=(40, 2)), RNG.integers(0, 3, (40, 1)), RNG.integers(0, 7, (40, 1))], axis=1)
    columns = (Column("a"), Column("b"), Column("few", "category"), Column("many", "category"))
    codes, flags = (Columns(NoScaling(), one).fit(raw, columns) for one in (Categories(one_hot=3), OneHot()))
    layout = codes.layout((4,))
    assert layout == InputLayout(numbers=2, flags=3, categories=(7,))
    model = Mlp(widths=(5,), dropout=0.0)
    told = model.for_inputs(layout)
    assert isinstance(told.inputs, LaidOut)
    network, plain = network_of(told, (6,)), network_of(model, (12,))
    new = np.concatenate([raw[:6], [[0.5, 0.5, 1.0, 99.0]]])  # a category that training did not see
    rows = codes.apply(new)
    assert rows[-1, -1] == 7
    np.testing.assert_allclose(run(network, rows), run(plain, flags.apply(new)), atol=1e-6)


# --- layouts


@pytest.mark.parametrize(
    ("spec", "layout", "width"),
    [
        (Embedded(), MIXED, 3 * 4 + 2 + 2 * 8),
        (Embedded(PeriodicRectified(), category_size=3), MIXED, 3 * 8 + 2 + 2 * 3),
        (Embedded(PiecewiseLinear(size=2)), InputLayout(3), 9),
        (Embedded(NoEmbedding()), InputLayout(0, 4), 4),
        (Embedded(), InputLayout(0, 4), 4),
        (Embedded(), InputLayout(0, 0, (3, 30)), 16),
        (Embedded(factor=False), InputLayout(0, 2, (3,)), 10),
        (Direct(), MIXED, 3 + 2 + 4 + 12),
        (Direct(), InputLayout(0, 0, (3, 30)), 33),
        (Direct(), InputLayout(5, 1), 6),
    ],
    ids=str,
)
def test_width(spec: AbstractInputStage, layout: InputLayout, width: int) -> None:
    stage = eqx.filter_eval_shape(build, spec, layout)
    assert stage_width(stage, layout) == width
    model = Mlp(widths=(2,), dropout=0.0, inputs=spec).for_inputs(layout)
    network = eqx.filter_eval_shape(lambda: model.build((layout.width,), 3, key=KEY))
    assert network.layers[0].weight.shape == (2, width)
    assert eqx.filter_eval_shape(network, jnp.zeros(layout.width)).shape == (3,)
    if isinstance(spec, Embedded):
        assert stage.factor.shape == (width,) if spec.factor else stage.factor is None
    else:
        assert (stage is None) == (not layout.categories)


def test_each_input_of_the_first_layer_has_a_factor() -> None:
    stage = build(Embedded(Periodic(frequencies=2, size=1), category_size=2))
    factor = np.linspace(-1, 2, 3 * 2 + 2 + 4)
    scaled = eqx.tree_at(lambda one: one.factor, stage, jnp.asarray(factor, jnp.float32))
    assert np.array_equal(stage.factor, np.ones(12))
    np.testing.assert_allclose(run(scaled, X), np.asarray(run(stage, X)) * factor, atol=1e-6)


def test_inputs_that_nobody_described_are_numbers() -> None:
    model = Mlp(widths=(2,), inputs=Embedded(Periodic(size=1)))
    assert model.for_inputs(None) is model
    assert eqx.filter_eval_shape(network_of, model, (2, 3)).layers[0].weight.shape == (2, 12)
    direct = Mlp(widths=(2,))
    assert direct.for_inputs(InputLayout(4, 3)) is direct  # nothing to be told
    assert eqx.filter_eval_shape(network_of, direct, (7,)).inputs is None


def test_pieces_are_drawn_apart() -> None:
    """A further category changes neither the numbers' embedding nor the tables before it."""
    few, more = (build(Embedded(), InputLayout(3, 0, sizes)) for sizes in ((4,), (4, 9)))
    assert eqx.tree_equal(few.numbers, more.numbers)
    assert eqx.tree_equal(few.tables[0], more.tables[0])


@pytest.mark.parametrize(
    "make",
    [lambda: Periodic(frequencies=0), lambda: Periodic(deviation=0.0), lambda: Embedded(category_size=0)],
)
def test_what_cannot_be_is_refused(make: Any) -> None:
    with pytest.raises(RequestError):
        make()
