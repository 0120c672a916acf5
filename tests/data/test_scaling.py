"""Scalers: scikit-learn as the oracle, statistics of the training part alone, nothing that is not a number."""

import gzip
import json

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_matrix, random_array
from sklearn.decomposition import PCA
from sklearn.preprocessing import MaxAbsScaler, QuantileTransformer, StandardScaler

from gradwise.data import column_statistics, scaling
from gradwise.data.category_scaling import Categories, OneHot
from gradwise.data.count_scaling import LogCounts
from gradwise.data.scaling import (
    Automatic,
    Chain,
    Columns,
    Logarithm,
    MaxAbs,
    NormalScores,
    NoScaling,
    Pca,
    Pixels,
    Robust,
    SquareRoot,
    Standardise,
    Uniformise,
    UnitRange,
    kind_of_inputs,
)
from gradwise.data.splits import HoldOut, TimeHoldOut
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import AbstractScaler
from gradwise.specs.dataset import Column, Dataset, InputLayout, Numbers
from gradwise.specs.fitted_scaler import FittedScaler
from gradwise.specs.serialisation import from_json, from_plain, to_json, to_plain

RANDOM = np.random.default_rng(0)
NUMERIC = [
    NoScaling(),
    Standardise(),
    Robust(),
    Robust(limit=np.inf),
    Uniformise(),
    Uniformise(quantiles=7),
    NormalScores(),
    NormalScores(quantiles=7),
    Logarithm(),
    SquareRoot(),
    Pixels(),
    MaxAbs(),
    Pca(),
    Pca(count=1),
    Pca(variance=0.5, whiten=False),
    Chain((Logarithm(), Standardise(), Pca(count=1))),
    Columns(),
    Columns(numbers=NormalScores()),
    Automatic(),
]


def table(rows=60, seed=0):
    """Columns as tables have them: normal, skewed, discrete, far from zero, constant."""
    random = np.random.default_rng(seed)
    return np.column_stack(
        [
            random.normal(size=rows),
            random.lognormal(0, 2, rows),
            random.integers(0, 4, rows),
            1e9 + random.normal(size=rows),
            np.full(rows, 0.1),
        ]
    )


def with_gaps(rows=60, seed=0):
    values = table(rows, seed)
    values[np.random.default_rng(seed + 1).random(values.shape) < 0.2] = np.nan
    return values


def name_of(scaler):
    return to_json(scaler).replace("gradwise.data.scaling:", "").replace("\n", "").replace(" ", "")[:80]


each_numeric = pytest.mark.parametrize("scaler", NUMERIC, ids=name_of)


# --- oracles ---


def test_standardise_is_standard_scaler():
    raw, new = table(), table(20, seed=5)
    oracle = StandardScaler().fit(raw[:, :4])
    fitted = Standardise().fit(raw)
    for rows in (raw, new):
        np.testing.assert_allclose(fitted.apply(rows, np.float64)[:, :4], oracle.transform(rows[:, :4]), atol=1e-6)


def test_standardise_keeps_its_digits_where_sums_of_squares_lose_them():
    random = np.random.default_rng(0)
    unit = random.normal(size=500)
    expected = (unit - unit.mean()) / unit.std()
    tiny, huge = 1.7e9 + 1e-3 * unit, 1e200 * unit
    found = Standardise().fit(np.column_stack([tiny, huge])).apply(np.column_stack([tiny, huge]), np.float64)
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-3)  # 1.7e9 itself has seven digits after the point
    np.testing.assert_allclose(found[:, 1], expected, atol=1e-12)


def robust_by_hand(train, new, limit):
    """One column, one number at a time, by the paper's formula."""
    present = train[~np.isnan(train)]
    lower, median, upper = np.percentile(present, [25, 50, 75])
    spread = upper - lower or (present.max() - present.min()) / 2
    z = [0.0 if np.isnan(value) or spread == 0 else (value - median) / spread for value in new.tolist()]
    return np.array([value / np.sqrt(1 + (value / limit) ** 2) for value in z])


@pytest.mark.parametrize("limit", [3.0, 0.5, np.inf])
def test_robust_is_the_papers_formula(limit):
    random = np.random.default_rng(0)
    outliers = random.normal(size=101)
    outliers[:3] = [1e6, -1e7, 1e8]
    mostly_zero = np.where(random.random(101) < 0.9, 0.0, random.exponential(size=101))  # both quartiles are 0
    raw = np.column_stack([outliers, mostly_zero, np.full(101, 2.5), random.lognormal(0, 2, 101)])
    raw[random.random(101) < 0.3, 3] = np.nan
    new = np.vstack([np.full(4, np.nan), 100 * random.normal(size=(50, 4))])
    fitted = Robust(limit=limit).fit(raw, tuple(Column(name) for name in "abcd"))
    for rows in (raw, new):
        found = fitted.apply(rows, np.float64)
        for j in range(4):
            np.testing.assert_allclose(found[:, j], robust_by_hand(raw[:, j], rows[:, j], limit), rtol=1e-9, atol=1e-12)
        assert np.abs(found).max() <= limit
    assert fitted.describe() == ["`c` is constant in the training set and becomes 0"]


def test_outliers_hardly_move_the_others_of_a_robust_column():
    raw = np.random.default_rng(0).normal(size=(1000, 1))
    spoiled = np.vstack([raw[:-10], np.full((10, 1), 1e9)])
    plain, after = (Robust().fit(train).apply(raw[:-10], np.float64) for train in (raw, spoiled))
    assert np.abs(plain - after).max() < 0.1
    assert np.abs(Standardise().fit(spoiled).apply(raw[:-10])).max() < 0.2  # squeezed to nothing


def test_no_number_is_too_large_for_a_smooth_limit():
    fitted = Robust().fit(np.arange(9.0)[:, None])
    far = np.array([[-np.inf], [-1e300], [1e300], [np.inf]])
    np.testing.assert_allclose(fitted.apply(far)[:, 0], [-3, -3, 3, 3], rtol=1e-6)
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.vmap(fitted)(jnp.asarray(far))[:, 0], [-3, -3, 3, 3], rtol=1e-6)
    slope = jax.grad(lambda x: fitted(x)[0])(jnp.asarray([4.0]))
    np.testing.assert_allclose(slope, [0.25], rtol=1e-6)  # of the middle: 1 / interquartile range


@pytest.mark.parametrize("quantiles", [10, 60])
def test_uniformise_is_quantile_transformer(quantiles):
    raw, new = table()[:, [0, 1, 3]], 3 * table(200, seed=5)[:, [0, 1, 3]]
    oracle = QuantileTransformer(n_quantiles=quantiles, subsample=None).fit(raw)
    fitted = Uniformise(quantiles=quantiles).fit(raw)
    for rows in (raw, new):
        np.testing.assert_allclose(fitted.apply(rows, np.float64), oracle.transform(rows), atol=1e-6)


def test_uniformise_gives_ties_their_middle_rank():
    raw = np.random.default_rng(0).integers(0, 5, (80, 3)).astype(float)
    found = Uniformise().fit(raw).apply(raw, np.float64)
    for j in range(3):
        np.testing.assert_allclose(found[:, j], (stats.rankdata(raw[:, j]) - 1) / 79, atol=1e-12)
    # scikit-learn computes the same up to a rank that rounding shifts, but gives the ends 0 and 1
    oracle = QuantileTransformer(n_quantiles=80, subsample=None).fit_transform(raw)
    between = np.isin(raw, [1, 2, 3])
    np.testing.assert_allclose(found[between], oracle[between], atol=0.51 / 79)


def test_uniformise_ranks_among_the_values_that_are_there():
    raw = with_gaps()[:, [0, 1, 3]]
    missing = np.isnan(raw)
    oracle = QuantileTransformer(n_quantiles=60, subsample=None).fit_transform(raw)
    found = Uniformise().fit(raw).apply(raw, np.float64)
    np.testing.assert_allclose(found[~missing], oracle[~missing], atol=1e-6)
    assert (found[missing] == 0.5).all()


def test_of_many_rows_some_are_sorted_but_the_ends_are_those_of_all():
    raw = np.random.default_rng(0).random((2001, 1))
    raw[1], raw[1001] = -5.0, 9.0  # rows that the sample skips
    fitted = Uniformise(quantiles=11).fit(raw)
    found = fitted.apply(np.array([[-6.0], [-5.0], [-4.0], [0.5], [8.0], [9.0]]), np.float64)[:, 0]
    assert found[0] == found[1] == 0 < found[2] < 0.1
    assert 0.9 < found[4] < found[5] == 1
    assert abs(found[3] - 0.5) < 0.1


def test_the_knots_of_all_columns_together_are_limited(monkeypatch):
    monkeypatch.setattr(scaling, "_KNOTS", 100)
    assert Uniformise().fit(table()).knots.shape == (20, 5)
    assert Uniformise().fit(np.zeros((60, 50))).knots.shape == (16, 50)


def test_uniformise_clamps_and_rises():
    fitted = Uniformise().fit(table())
    beyond = np.vstack([table().min(0) - 1e6, table().max(0) + 1e6])
    np.testing.assert_array_equal(fitted.apply(beyond)[:, [0, 1, 3]], [[0, 0, 0], [1, 1, 1]])
    line = np.linspace(-4, 12, 500)[:, None] * np.ones(5)
    assert (np.diff(fitted.apply(line, np.float64), axis=0) >= 0).all()


def test_normal_scores_are_normal_deviates_of_ranks():
    raw = table()[:, :4]
    found = NormalScores(bend=0.0).fit(raw).apply(raw, np.float64)
    for j in range(4):
        ranks = (stats.rankdata(raw[:, j]) - 1) / (len(raw) - 1)
        scores = stats.norm.ppf(np.clip(ranks, 0.5 / len(raw), 1 - 0.5 / len(raw)))
        np.testing.assert_allclose(found[:, j], (scores - scores.mean()) / scores.std(), atol=1e-9)
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-9)
    np.testing.assert_allclose(found.std(0), 1, atol=1e-9)


def test_tame_columns_are_only_standardised_and_wild_ones_are_ranked():
    random = np.random.default_rng(0)
    raw = np.column_stack([random.uniform(-5, 3, 900), random.lognormal(0, 2, 900), random.normal(size=900)])
    found = NormalScores(bend=2.0).fit(raw).apply(raw, np.float64)
    np.testing.assert_allclose(found[:, 0], StandardScaler().fit_transform(raw)[:, 0], atol=1e-9)
    ranked = NormalScores(bend=0.0).fit(raw).apply(raw, np.float64)
    np.testing.assert_array_equal(found[:, 1:], ranked[:, 1:])  # a normal column has values beyond two deviations
    assert np.abs(ranked[:, 0] - found[:, 0]).max() > 0.5


def test_normal_scores_make_any_distribution_normal_and_go_straight_on():
    raw = np.random.default_rng(0).lognormal(0, 2, (30_000, 1))
    fitted = NormalScores().fit(raw)
    found = fitted.apply(raw, np.float64)[:, 0]
    assert stats.kstest(found, "norm").statistic < 0.02
    low, high = raw.min(), raw.max()
    ends = fitted.apply(np.array([[low], [high]]), np.float64)[:, 0]
    slope = (ends[1] - ends[0]) / (high - low)
    beyond = fitted.apply(np.array([[low - 7.0], [high + 1e5]]), np.float64)[:, 0]
    np.testing.assert_allclose(beyond, [ends[0] - 7.0 * slope, ends[1] + 1e5 * slope], rtol=1e-9)


@pytest.mark.parametrize("shape", [(200, 12), (12, 200)])
@pytest.mark.parametrize("whiten", [True, False])
def test_pca_is_scikit_learns(shape, whiten):
    random = np.random.default_rng(0)
    raw = random.normal(size=shape) @ np.diag(np.linspace(1, 3, shape[1])) + random.normal(size=shape[1])
    new = random.normal(size=(7, shape[1]))
    oracle = PCA(n_components=5, whiten=whiten).fit(raw)
    fitted = Pca(count=5, whiten=whiten).fit(raw)
    sign = np.sign((fitted.axes * oracle.components_.T).sum(0))
    for rows in (raw, new):
        np.testing.assert_allclose(fitted.apply(rows, np.float64), sign * oracle.transform(rows), atol=1e-6)


@pytest.mark.parametrize("variance", [0.5, 0.9, 0.99, 1.0])
def test_pca_keeps_the_variance_asked_for(variance):
    raw = np.random.default_rng(0).normal(size=(100, 8)) * np.arange(1, 9)
    shares = np.cumsum(PCA().fit(raw).explained_variance_ratio_)
    expected = int(np.argmax(shares >= variance - 1e-9)) + 1
    assert Pca(variance=variance).fit(raw).apply(raw).shape == (100, expected)


def test_pca_of_many_rows_and_columns_is_the_same(monkeypatch):
    raw = np.random.default_rng(0).normal(size=(60, 40)) * np.linspace(1, 5, 40)
    exact = Pca(count=4).fit(raw)
    monkeypatch.setattr(column_statistics, "EXACT", 10)
    for inputs in (raw, csr_matrix(raw)):
        iterative = Pca(count=4).fit(inputs)
        np.testing.assert_allclose(iterative.apply(inputs, np.float64), exact.apply(raw, np.float64), atol=1e-6)
        assert iterative.describe() == exact.describe()


def test_pca_drops_what_is_only_rounding():
    random = np.random.default_rng(0)
    raw = random.normal(size=(50, 2)) @ random.normal(size=(2, 6))
    whitened = Pca(count=6).fit(raw).apply(raw)
    assert whitened.shape == (50, 2)
    np.testing.assert_allclose(np.cov(whitened.T), np.eye(2), atol=1e-5)
    constant = np.full((5, 3), 0.1)
    np.testing.assert_array_equal(Pca().fit(constant).apply(constant + 1), np.zeros((5, 1)))


def test_max_abs_is_max_abs_scaler_dense_and_sparse():
    raw = RANDOM.normal(size=(30, 6)) * (RANDOM.random((30, 6)) < 0.4)
    raw[:, 5] = 0
    expected = MaxAbsScaler().fit_transform(raw)
    for inputs in (raw, csr_matrix(raw)):
        np.testing.assert_allclose(MaxAbs().fit(inputs).apply(inputs, np.float64), expected, atol=1e-12)


def test_logarithm_and_root_keep_the_sign():
    raw = np.array([[-9.0], [-0.5], [0.0], [0.5], [9.0]])
    logarithm, root = (scaler.fit(raw).apply(raw, np.float64) for scaler in (Logarithm(), SquareRoot()))
    np.testing.assert_allclose(logarithm[:, 0], [-np.log(10), -np.log(1.5), 0, np.log(1.5), np.log(10)])
    np.testing.assert_allclose(root[:, 0], [-3, -np.sqrt(0.5), 0, np.sqrt(0.5), 3])


def test_pixels_share_one_mean_and_deviation():
    raw = RANDOM.integers(0, 256, (50, 4, 5)).astype(np.uint8)
    raw[:, 0, 0] = 0
    found = Pixels().fit(raw).apply(raw, np.float64)
    np.testing.assert_allclose(found, (raw - raw.mean()) / raw.std(), atol=1e-12)


@pytest.mark.parametrize(
    "scaler", [Standardise(), Robust(), Uniformise(), NormalScores(), Chain((Logarithm(), Standardise()))]
)
def test_what_differs_by_rounding_alone_is_constant(scaler):
    raw = np.array([[0.3, 0.3], [0.1 + 0.2, np.nan], [0.3, 0.3]])
    assert raw[0, 0] != raw[1, 0]
    fitted = scaler.fit(raw, (Column("a"), Column("b")))
    np.testing.assert_array_equal(fitted.apply(raw), np.zeros((3, 2)))
    assert fitted.describe() == ["`a`, `b` are constant in the training set and become 0"]


# --- contracts that hold for every scaler ---


@each_numeric
def test_a_fitted_scaler_is_saved_to_the_last_bit(scaler):
    raw = with_gaps()
    fitted = scaler.fit(raw)
    arrays = {}
    text = json.dumps(to_plain(fitted, arrays))
    stored = {name: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape) for name, array in arrays.items()}
    loaded = from_plain(json.loads(text), stored)
    assert type(loaded) is type(fitted)
    assert loaded.apply(raw).tobytes() == fitted.apply(raw).tobytes()
    assert loaded.describe() == fitted.describe()
    assert jax.tree.structure(loaded) == jax.tree.structure(fitted)


@each_numeric
def test_a_scaler_goes_to_json_and_back(scaler):
    assert from_json(to_json(scaler)) == scaler


@each_numeric
def test_jax_and_numpy_agree(scaler):
    raw = with_gaps()
    fitted = scaler.fit(raw)
    assert isinstance(fitted, FittedScaler)
    expected = fitted.apply(raw)
    assert expected.dtype == np.float32
    with jax.enable_x64(True):
        found = jax.jit(jax.vmap(fitted))(jnp.asarray(raw))
        np.testing.assert_allclose(found, expected, rtol=2e-7, atol=2e-7)
        np.testing.assert_allclose(fitted(jnp.asarray(raw[0])), expected[0], rtol=2e-7, atol=2e-7)
    single = jax.jit(jax.vmap(fitted))(jnp.asarray(raw, jnp.float32))  # in 32 bits 1e9 + 0.3 has no digits left
    assert single.dtype == jnp.float32
    assert np.isfinite(single).all()


@each_numeric
def test_no_missing_or_constant_value_reaches_the_network(scaler):
    raw = with_gaps()
    raw[:, 1] = np.nan  # nothing there at all
    raw[0] = np.nan
    fitted = scaler.fit(raw)
    for rows in (raw, table(), np.full((3, 5), np.nan)):
        assert np.isfinite(fitted.apply(rows)).all()


@each_numeric
def test_each_row_is_mapped_by_itself(scaler):
    raw = table(300)
    fitted = scaler.fit(raw[:100])
    together = fitted.apply(raw)
    apart = np.concatenate([fitted.apply(raw[i : i + 1]) for i in range(0, 300, 7)])
    np.testing.assert_allclose(together[::7], apart, rtol=2e-7, atol=1e-12)
    assert fitted.apply(raw[:0]).shape == (0, *together.shape[1:])


@each_numeric
@pytest.mark.parametrize("shape", [(1, 3), (2, 1), (1, 1)])
def test_one_example_and_one_column(scaler, shape):
    raw = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    fitted = scaler.fit(raw)
    found = fitted.apply(raw)
    assert np.isfinite(found).all()
    assert found.shape[0] == shape[0]
    assert np.isfinite(fitted.apply(raw + 100)).all()


@each_numeric
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.float32, bool])
def test_any_kind_of_number(scaler, dtype):
    raw = np.random.default_rng(0).integers(0, 2 if dtype is bool else 100, (40, 3)).astype(dtype)
    expected = scaler.fit(raw.astype(float)).apply(raw.astype(float))
    np.testing.assert_array_equal(scaler.fit(raw).apply(raw), expected)


@pytest.mark.parametrize(
    "scaler", [Standardise(), Robust(), Uniformise(), NormalScores(), Pixels(), Pca(), MaxAbs(), NoScaling()]
)
def test_sparse_is_as_dense(scaler):
    dense = RANDOM.normal(size=(40, 9)) * (RANDOM.random((40, 9)) < 0.3)
    sparse = csr_matrix(dense)
    np.testing.assert_allclose(scaler.fit(sparse).apply(sparse), scaler.fit(dense).apply(dense), atol=1e-7)


@pytest.mark.parametrize("scaler", [s for s in NUMERIC if not isinstance(s, Columns)], ids=name_of)
def test_images_of_any_shape(scaler):
    images = np.random.default_rng(0).integers(0, 256, (20, 4, 3, 2)).astype(np.uint8)
    found = scaler.fit(images).apply(images)
    if not isinstance(scaler, Automatic):
        flat = scaler.fit(images.reshape(20, -1)).apply(images.reshape(20, -1))
        np.testing.assert_array_equal(found.reshape(20, -1), flat)
    assert found.shape[1:] in ((4, 3, 2), found.shape[1:2])


# --- no leak ---


def hostile(dataset, train):
    """The same data with every row outside the training part replaced by absurd numbers."""
    outside = np.setdiff1d(np.arange(len(dataset)), train.targets[:, 0].astype(int))
    inputs = dataset.inputs.copy()
    inputs[outside] = 1e6 * np.random.default_rng(9).normal(size=inputs[outside].shape)
    inputs[outside[::3]] = np.nan
    return Dataset(inputs, dataset.targets, dataset.task, dataset.columns)


@each_numeric
def test_statistics_come_from_the_training_part_alone(scaler):
    raw = table(100)
    dataset = Dataset(raw, np.arange(100.0)[:, None], Numbers())
    train, _, _ = HoldOut()(dataset, key=jr.key(3))
    changed, _, _ = HoldOut()(hostile(dataset, train), key=jr.key(3))
    arrays, same = {}, {}
    plain = to_plain(scaler.fit(train.inputs, train.columns), arrays)
    assert plain == to_plain(scaler.fit(changed.inputs, changed.columns), same)
    assert {name: array.tobytes() for name, array in arrays.items()} == {
        name: array.tobytes() for name, array in same.items()
    }


def test_the_training_part_is_centred_and_the_whole_is_not():
    """A scaler fitted on all data would centre the whole and leave the training part off centre."""
    random = np.random.default_rng(0)
    raw = random.normal(size=(200, 1)) + np.arange(200)[:, None]  # drifts, so that the parts differ
    dataset = Dataset(raw, np.zeros((200, 1)), Numbers(), times=np.arange(200))
    train, valid, test = TimeHoldOut()(dataset, key=jr.key(0))
    fitted = Automatic(numbers=Standardise()).fit(train.inputs, train.columns)
    assert abs(fitted.apply(train.inputs, np.float64).mean()) < 1e-12
    assert abs(fitted.apply(raw, np.float64).mean()) > 0.5
    assert fitted.apply(valid.inputs).min() > 1.5
    assert fitted.apply(test.inputs).mean() > fitted.apply(valid.inputs).mean()


# --- tables ---

MIXED = (
    Column("age"),
    Column("city", "category", ("Bern", "Oslo")),
    Column("since", "date"),
    Column("gone"),
    Column("same"),
)
ROWS = np.array(
    [
        [20.0, 0, 1.0e9, np.nan, 7],
        [np.nan, 1, 1.1e9, np.nan, 7],
        [40.0, np.nan, 1.2e9, np.nan, 7],
        [60.0, 0, 1.3e9, np.nan, 7],
    ]
)


def test_columns_each_their_own_way():
    fitted = Columns().fit(ROWS, MIXED)
    found = fitted.apply(ROWS, np.float64)
    age = np.array([-1.0, 0.0, 0.0, 1.0]) * np.sqrt(1.5)  # filled with the mean, 40
    since = np.array([-1.5, -0.5, 0.5, 1.5]) / np.sqrt(1.25)
    city = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]])  # the last slot says "missing"
    expected = np.column_stack([age, since, np.zeros(4), np.zeros(4), city, [0, 1, 0, 0]])
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert fitted.describe() == [
        "`age` is missing in 1 of 4 training rows: imputed with the column's centre, with an indicator column",
        "`city` is missing in 1 of 4 training rows: missing is treated as a category",
        "`gone` is missing in 4 of 4 training rows: the column becomes 0",
        "`gone`, `same` are constant in the training set and become 0",
    ]


def test_columns_know_which_inputs_are_numbers_and_which_are_flags():
    fitted = Columns().fit(ROWS, MIXED)
    assert fitted.layout((8,)) == InputLayout(numbers=4, flags=4)
    assert Columns(numbers=Pca(count=2)).fit(ROWS, MIXED).layout((6,)) == InputLayout(numbers=2, flags=4)
    assert OneHot().fit(ROWS[:, 1:2], MIXED[1:2]).layout((3,)) == InputLayout(numbers=0, flags=3)
    assert Chain((Columns(), Standardise())).fit(ROWS, MIXED).layout((8,)) == InputLayout(numbers=8)
    assert Chain((NoScaling(), OneHot())).fit(ROWS[:, 4:]).layout((1,)) == InputLayout(numbers=0, flags=1)


@each_numeric
def test_a_layout_is_as_wide_as_the_inputs(scaler):
    raw = with_gaps()
    fitted = scaler.fit(raw)
    assert fitted.layout(fitted.apply(raw).shape[1:]).width == fitted.apply(raw).shape[1]


def test_robust_numbers_beside_codes():
    columns = (Column("city", "category", tuple("abcdefghijkl")), *MIXED[2:], MIXED[0])
    rows = np.column_stack([[11.0, 3.0, np.nan, 3.0], ROWS[:, 2:], ROWS[:, 0]])
    fitted = Automatic(numbers=Robust(limit=np.inf), categories=Categories(one_hot=1)).fit(rows, columns)
    since = np.array([-1.5, -0.5, 0.5, 1.5]) / 1.5
    age = np.array([-1.0, 0.0, 0.0, 1.0])
    expected = np.column_stack([since, np.zeros(4), np.zeros(4), age, [0, 1, 0, 0], [1, 0, 2, 0]])
    np.testing.assert_allclose(fitted.apply(rows, np.float64), expected, atol=1e-12)
    assert fitted.layout((6,)) == InputLayout(numbers=4, flags=1, categories=(2,))


def test_new_rows_with_gaps_where_training_had_none():
    fitted = Columns().fit(ROWS[:, [2, 4]], (MIXED[2], MIXED[4]))
    found = fitted.apply(np.array([[np.nan, np.nan], [1.15e9, 1e6]]))
    np.testing.assert_array_equal(found, np.zeros((2, 2)))  # the middle; and a constant column stays 0 for ever


def test_only_categories():
    found = Automatic().fit(ROWS[:, 1:2], MIXED[1:2]).apply(ROWS[:, 1:2])
    np.testing.assert_array_equal(found, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]])


def test_columns_save_and_agree_with_jax():
    fitted = Automatic().fit(ROWS, MIXED)
    arrays = {}
    loaded = from_plain(json.loads(json.dumps(to_plain(fitted, arrays))), arrays)
    assert loaded.apply(ROWS).tobytes() == fitted.apply(ROWS).tobytes()
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.vmap(fitted)(jnp.asarray(ROWS)), fitted.apply(ROWS), rtol=2e-7, atol=2e-7)


@pytest.mark.parametrize("scaler", [Standardise(), Robust(), Uniformise(), Pca(), Logarithm(), Pixels()])
def test_categories_are_not_numbers(scaler):
    with pytest.raises(
        RequestError, match=r"^`city` contains categories, which cannot be scaled as numbers. Wrap the scaler: `Columns"
    ):
        scaler.fit(ROWS, MIXED)


@each_numeric
def test_infinite_values_are_refused_by_name(scaler):
    raw = table()
    raw[3, 2] = np.inf
    columns = tuple(Column(f"c{j}") for j in range(5))
    with pytest.raises(RequestError, match=r"^`c2` contains infinite values"):
        scaler.fit(raw, columns)
    with pytest.raises(RequestError, match=r"^X\[:, 2\] contains infinite values"):
        scaler.fit(raw)


def test_automatic_follows_the_kind_of_data():
    bytes_ = RANDOM.integers(0, 17, (30, 64)).astype(np.uint8)

    def same(inputs, columns, expected):
        found, wanted = (scaler.fit(inputs, columns).apply(inputs) for scaler in (Automatic(), expected))
        np.testing.assert_array_equal(found, wanted)

    same(bytes_, (), Pixels())
    same(bytes_.astype(float), tuple(Column(f"p{j}", "pixel") for j in range(64)), Pixels())
    same(bytes_.astype(float).reshape(30, 8, 8), (), Pixels())
    same(bytes_.astype(float), (), NormalScores())
    same(bytes_[:, :16], (), NormalScores())  # a table of small numbers, not an image
    same(csr_matrix(bytes_.astype(float)), (), LogCounts())
    same(csr_matrix(bytes_ / 2.0), (), MaxAbs())
    same(with_gaps(), (), Columns(numbers=NormalScores()))
    same(ROWS, MIXED, Columns(numbers=NormalScores()))


def test_kinds_of_inputs():
    bytes_ = np.zeros((3, 64), np.uint8)
    pixels = tuple(Column(f"p{j}", "pixel") for j in range(64))
    assert kind_of_inputs(csr_matrix(bytes_), ()) == "sparse"
    assert kind_of_inputs(np.zeros((3, 2, 2)), ()) == "images"
    assert kind_of_inputs(bytes_.astype(float), pixels) == "images"
    assert kind_of_inputs(bytes_, ()) == "images"
    assert kind_of_inputs(bytes_, tuple(Column(f"c{j}") for j in range(64))) == "table"
    assert kind_of_inputs(bytes_[:, :63], ()) == "table"
    assert kind_of_inputs(ROWS, MIXED) == "table"


def test_what_each_scaler_refuses():
    with pytest.raises(RequestError, match=r"`Columns` needs a table with columns; got examples of shape \(2, 2\)"):
        Columns().fit(np.zeros((3, 2, 2)))
    with pytest.raises(RequestError, match="`OneHot` needs a table with columns; got a sparse matrix"):
        OneHot().fit(csr_matrix(np.eye(3)))
    with pytest.raises(RequestError, match=r"`Uniformise.quantiles` must lie in \[2, inf\); got 1"):
        Uniformise(quantiles=1)
    with pytest.raises(RequestError, match=r"`Pca.count` must be a whole number; got 2.5"):
        Pca(count=2.5)
    with pytest.raises(RequestError, match=r"`Robust.limit` must lie in \(0, inf\]; got 0"):
        Robust(limit=0)
    with pytest.raises(RequestError, match="`Chain` needs at least one scaler"):
        Chain(())


def test_a_result_beyond_memory_is_refused_before_it_is_made():
    huge = csr_matrix((10**7, 10**5))
    with pytest.raises(RequestError, match=r"^10000000 rows of 100000 network inputs need 3725\.3 GiB"):
        MaxAbs().fit(csr_matrix((1, 10**5))).apply(huge)


# --- size, and a part of one's own ---


@pytest.mark.parametrize("scaler", [Standardise(), Robust(), NormalScores(), Pixels(), Pca(count=3), Automatic()])
def test_a_hundred_thousand_columns(scaler):
    raw = np.random.default_rng(0).normal(size=(20, 100_000)).astype(np.float32)
    fitted = scaler.fit(raw)
    assert sum(array.nbytes for array in jax.tree.leaves(fitted)) < 100e6
    assert np.isfinite(fitted.apply(raw)).all()


def test_blocks_do_not_show(monkeypatch):
    raw = with_gaps()
    whole = [scaler.fit(raw).apply(raw, np.float64) for scaler in NUMERIC]
    monkeypatch.setattr(column_statistics, "BLOCK", 70)  # one column, one row at a time
    for scaler, expected in zip(NUMERIC, whole, strict=True):
        np.testing.assert_allclose(scaler.fit(raw).apply(raw, np.float64), expected, atol=1e-9)


class _Halved(FittedScaler):
    def map(self, examples, library):
        return library.nan_to_num(examples) / 2

    def describe(self):
        return ["halved"]


class _Halve(AbstractScaler):
    def fit(self, inputs, columns=()):
        return _Halved()


def test_a_scaler_of_ones_own_needs_one_map():
    fitted = Chain((_Halve(), Standardise())).fit(table())
    np.testing.assert_allclose(fitted.apply(table()), Standardise().fit(table()).apply(table()), atol=1e-6)
    assert fitted.describe()[0] == "halved"
    assert float(_Halve().fit(table())(jnp.asarray([3.0]))[0]) == 1.5


def test_real_pixels(data_folder):
    with gzip.open(data_folder / "mnist" / "t10k-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read()[16:], np.uint8).reshape(-1, 28, 28)[:2000]
    found = Automatic().fit(images).apply(images)
    assert found.shape == images.shape
    np.testing.assert_allclose([found.mean(), found.std()], [0, 1], atol=1e-4)


def test_real_numbers(data_folder):
    raw = np.load(data_folder / "tabular" / "reg_california_housing.npz")["X"]
    found = Automatic().fit(raw[::2]).apply(raw[1::2])
    assert np.isfinite(found).all()
    assert np.abs(found).max() < 10
    assert (np.abs(found.std(0) - 1) < 0.5).all()


def test_sparse_columns_are_measured_by_their_entries():
    """Dense columns are the oracle: negative and missing numbers, a constant, a full and an empty column."""
    draw = np.random.default_rng(0)
    dense = np.where(draw.random((40, 6)) < 0.2, draw.normal(1e6, 3.0, (40, 6)), 0.0)
    dense[:, 1], dense[:, 2], dense[:, 3] = 2.5, draw.normal(5.0, 1.0, 40), 0.0
    dense[3, 4] = np.nan
    sparse = csr_matrix(dense)
    for scaler in (Standardise(), NoScaling()):
        found = scaler.fit(sparse, ()).apply(dense[:5], np.float64)
        np.testing.assert_allclose(found, scaler.fit(dense, ()).apply(dense[:5], np.float64), rtol=1e-9, atol=1e-9)
    counts = np.abs(np.nan_to_num(dense))
    fitted = UnitRange().fit(csr_matrix(counts), ())
    assert fitted.keeps_zeros()
    scaled = fitted.apply_sparse(csr_matrix(counts)).toarray()
    np.testing.assert_allclose(scaled, fitted.apply(counts, np.float64), rtol=1e-12)
    np.testing.assert_allclose(scaled.max(0), [1, 1, 1, 0, 1, 1])
    wide = random_array((2000, 1_000_000), density=1e-5, rng=draw, format="csr")
    assert Standardise().fit(csr_matrix(wide), ()).scale.shape == (1_000_000,)
