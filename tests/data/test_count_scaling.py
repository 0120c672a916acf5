"""Scaling counts: scikit-learn's transformer and the definition in NumPy are the oracles."""

import jax
import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfTransformer

from gradwise.data.count_scaling import Binary, LogCounts, TfIdf, are_counts
from gradwise.data.scaling import Automatic, Chain, MaxAbs, NoScaling, Standardise
from gradwise.runtime.errors import RequestError
from gradwise.specs.contracts import AbstractScaler
from gradwise.specs.dataset import Column
from gradwise.specs.serialisation import from_plain, to_plain

RANDOM = np.random.default_rng(0)
COUNTS = np.where(RANDOM.random((40, 12)) < 0.3, RANDOM.poisson(2.0, (40, 12)) + 1, 0).astype(float)
COUNTS[3] = 0.0  # an empty text
COUNTS[:, 5] = 0.0  # a word that no training text has
NEW = RANDOM.poisson(0.5, (9, 12)).astype(float)
SCALERS = [
    Binary(),
    LogCounts(),
    *(TfIdf(counts, length) for counts in ("log", "raw", "binary") for length in ("typical", "one", "any")),
    MaxAbs(),
    NoScaling(),
    Chain((LogCounts(), MaxAbs())),
]


@pytest.mark.parametrize("sublinear", [False, True])
@pytest.mark.parametrize("norm", ["l2", None])
def test_tf_idf_is_that_of_scikit_learn(sublinear: bool, norm: str | None) -> None:
    ours = TfIdf("log" if sublinear else "raw", "one" if norm else "any").fit(csr_matrix(COUNTS))
    theirs = TfidfTransformer(sublinear_tf=sublinear, norm=norm).fit(COUNTS)
    for rows in (COUNTS, NEW):
        expected = theirs.transform(rows).toarray()
        np.testing.assert_allclose(ours.apply(rows, np.float64), expected, rtol=1e-12)
        np.testing.assert_allclose(ours.apply_sparse(csr_matrix(rows)).toarray(), expected, rtol=1e-12)


def test_a_typical_entry_is_about_one() -> None:
    scaled = TfIdf(length="typical").fit(csr_matrix(COUNTS)).apply(COUNTS, np.float64)
    lengths = np.linalg.norm(scaled, axis=1)
    words = (COUNTS > 0).sum(1)
    np.testing.assert_allclose(lengths[words > 0], np.sqrt(words.mean()))
    assert lengths[3] == 0
    assert 0.8 < np.sqrt((scaled**2).sum() / words.sum()) < 1.2


def test_binary_and_logarithm_are_what_they_say() -> None:
    np.testing.assert_array_equal(Binary().fit(COUNTS).apply(NEW), NEW > 0)
    np.testing.assert_allclose(LogCounts().fit(COUNTS).apply(NEW, np.float64), np.log1p(NEW), rtol=1e-12)


@pytest.mark.parametrize("scaler", SCALERS, ids=str)
def test_sparse_and_dense_rows_are_scaled_alike_and_zeros_stay(scaler: AbstractScaler) -> None:
    """Fitted on either, applied to either, in NumPy and in JAX."""
    fitted = [scaler.fit(rows, ()) for rows in (COUNTS, csr_matrix(COUNTS))]
    expected = fitted[0].apply(NEW, np.float64)
    assert (expected[NEW == 0] == 0).all()
    for one in fitted:
        assert one.keeps_zeros()
        np.testing.assert_allclose(one.apply_sparse(csr_matrix(NEW)).toarray(), expected, rtol=1e-12)
        np.testing.assert_allclose(one.apply(csr_matrix(NEW)), expected, rtol=1e-6)
        np.testing.assert_allclose(jax.vmap(one)(NEW), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("scaler", SCALERS[:3], ids=str)
def test_a_missing_count_is_none_and_duplicates_are_summed(scaler: AbstractScaler) -> None:
    fitted = scaler.fit(COUNTS, ())
    holes = np.where(NEW == 2, np.nan, NEW)
    np.testing.assert_array_equal(fitted.apply(holes), fitted.apply(np.nan_to_num(holes)))
    twice = csr_matrix((np.array([1.0, 2.0]), np.array([4, 4]), np.array([0, 2])), shape=(1, 12))
    np.testing.assert_allclose(fitted.apply_sparse(twice).toarray(), fitted.apply(twice.toarray()), rtol=1e-6)


def test_a_fitted_scaler_is_saved_whole() -> None:
    fitted = TfIdf().fit(csr_matrix(COUNTS))
    arrays: dict[str, np.ndarray] = {}
    again = from_plain(to_plain(fitted, arrays), arrays)
    np.testing.assert_array_equal(again.apply(NEW), fitted.apply(NEW))


@pytest.mark.parametrize("wrong", [-1.0, np.inf])
def test_what_is_no_count_is_refused(wrong: float) -> None:
    spoilt = COUNTS.copy()
    spoilt[7, 2] = wrong
    for rows in (spoilt, csr_matrix(spoilt)):
        with pytest.raises(RequestError, match=r"Binary scales counts.*X\[:, 2\] holds"):
            Binary().fit(rows, ())
    named = tuple(Column(f"word{place}") for place in range(12))
    with pytest.raises(RequestError, match="`word2` holds"):
        TfIdf().fit(spoilt, named)
    with pytest.raises(RequestError, match="rows of counts"):
        TfIdf().fit(np.zeros((3, 4, 5)), ())


def test_counts_are_whole_and_at_least_zero_and_not_all_one() -> None:
    for rows, expected in ((COUNTS, True), (COUNTS > 0, False), (COUNTS / 2, False), (COUNTS - 2, False)):
        matrix = csr_matrix(rows.astype(float))
        assert are_counts(matrix) == expected
        chosen = Automatic().fit(matrix, ())
        np.testing.assert_allclose(
            chosen.apply(NEW), (LogCounts() if expected else MaxAbs()).fit(matrix, ()).apply(NEW)
        )
    assert not are_counts(csr_matrix((3, 4)))


def test_a_scaler_that_moves_zeros_says_so() -> None:
    fitted = Standardise().fit(COUNTS, ())
    assert not fitted.keeps_zeros()
    assert not Chain((LogCounts(), Standardise())).fit(COUNTS, ()).keeps_zeros()
