"""The order of the examples (rows B1, B3): each once an epoch, exact ages, permutations that look uniform."""

import functools
import itertools
from collections import Counter

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from gradwise.data.batches import Fixed, Reshuffled, ShuffledOnce, Stream, Streams, permute, rounds_for
from gradwise.runtime.errors import RequestError

ORDERS = (Reshuffled, ShuffledOnce, Fixed, Stream)


@functools.partial(jax.jit, static_argnames=("order", "count"))
def _indices(order, updates, count, key):
    return order.indices(updates, count, key=key)


def indices(order, updates, count: int, seed: int = 0):
    """Examples, presence and ages, as NumPy."""
    return tuple(map(np.asarray, _indices(order, jnp.asarray(updates), count, jr.key(seed))))


@functools.partial(jax.jit, static_argnames=("count", "size", "epochs"))
def _all_orders(count: int, size: int, epochs: int, key):
    updates = jnp.arange(epochs * -(-count // min(size, count)))
    return [kind(size=size).indices(updates, count, key=key) for kind in (*ORDERS, Streams)]


@pytest.mark.slow
@settings(max_examples=6, deadline=None, derandomize=True)
@given(st.integers(1, 2000), st.integers(1, 2100), st.integers(0, 2**32 - 1))
@example(1, 1, 0)
@example(2, 1, 1)
@example(1999, 2100, 2)
def test_each_order_visits_each_example_exactly_once_an_epoch(count: int, size: int, seed: int) -> None:
    size = max(size, count // 40)  # a few dozen updates an epoch are enough
    each, slots = -(-count // min(size, count)), min(size, count)
    for rows, present, ages in _all_orders(count, size, 2, jr.key(seed)):
        rows, present, ages = map(np.asarray, (rows, present, ages))
        assert rows.shape == present.shape == (2 * each, slots)
        assert rows.min() >= 0
        assert rows.max() < count
        for epoch in (slice(0, each), slice(each, None)):
            assert np.array_equal(np.sort(rows[epoch][present[epoch] == 1]), np.arange(count))
        assert np.array_equal(ages, np.cumsum(present.sum(1)))


_permute = jax.jit(permute, static_argnums=1)


def permutations(count: int, number: int, rounds: int, seed: int = 0) -> np.ndarray:
    """Many permutations, keyed by NumPy's random words."""
    words = np.random.default_rng(seed).integers(0, 2**32, (number, 1, rounds), dtype=np.uint32)
    return np.asarray(_permute(np.broadcast_to(np.arange(count), (number, count)), count, words))


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.integers(1, 2000), st.integers(0, 2**32 - 1))
@example(99_991, 0)
@example(65_536, 0)
def test_a_permutation_is_a_bijection(count: int, seed: int) -> None:
    for order in permutations(count, 2, rounds_for(count), seed):
        assert np.array_equal(np.sort(order), np.arange(count))


@pytest.mark.parametrize("kind", ORDERS)
def test_ages_and_slots_with_a_short_last_batch(kind: type) -> None:
    rows, present, ages = indices(kind(size=4), np.arange(6), count=10)
    assert ages.tolist() == [4, 8, 10, 14, 18, 20]
    assert present.tolist() == [[1] * 4, [1] * 4, [1, 1, 0, 0]] * 2
    # Unused slots hold the examples that began the epoch: real ones, which weight 0 keeps out.
    assert np.array_equal(rows[2, 2:], rows[0, :2])
    assert np.array_equal(rows[5, 2:], rows[3, :2])


def test_a_size_beyond_the_set_is_the_whole_set() -> None:
    rows, present, ages = indices(Reshuffled(size=32), np.arange(3), count=5)
    assert rows.shape == (3, 5)
    assert present.min() == 1
    assert ages.tolist() == [5, 10, 15]
    assert all(sorted(row) == [0, 1, 2, 3, 4] for row in rows.tolist())


def test_the_fixed_orders_are_the_order_of_the_file() -> None:
    for kind in (Fixed, Stream):
        rows, _, _ = indices(kind(size=3), np.arange(4), count=6)
        assert rows.tolist() == [[0, 1, 2], [3, 4, 5]] * 2
    assert Stream(size=3).limit_examples(6) == 6
    assert [kind(size=3).limit_examples(6) for kind in (Fixed, ShuffledOnce, Reshuffled)] == [None] * 3


def test_only_reshuffled_differs_between_epochs_and_both_between_keys() -> None:
    def epochs(order, seed):
        return indices(order, np.arange(20), 100, seed)[0].reshape(2, 100)

    again, once = epochs(Reshuffled(size=10), 0), epochs(ShuffledOnce(size=10), 0)
    assert np.array_equal(once[0], once[1])
    # Two independent permutations of 100 agree in about one place.
    assert (again[0] == again[1]).sum() < 8
    assert (again[0] == epochs(Reshuffled(size=10), 1)[0]).sum() < 8
    assert (once[0] == epochs(ShuffledOnce(size=10), 1)[0]).sum() < 8
    assert (once[0] == np.arange(100)).sum() < 8


def test_the_order_does_not_depend_on_the_mini_batch_size() -> None:
    whole = indices(Reshuffled(size=60), np.arange(2), 60)[0]
    parts = indices(Reshuffled(size=20), np.arange(6), 60)[0]
    assert np.array_equal(whole.ravel(), parts.ravel())


@pytest.mark.parametrize("kind", ORDERS)
def test_a_stream_resumes_at_any_update(kind: type) -> None:
    """Updates asked for alone are those asked for in a block: nothing but their numbers is needed."""
    order = kind(size=7)
    block = indices(order, np.arange(12), 40)
    for start in (0, 5, 7):
        alone = indices(order, np.arange(start, start + 5), 40)
        for all_of_them, some in zip(block, alone, strict=True):
            assert np.array_equal(all_of_them[start : start + 5], some)


def _pair_p_value(orders: np.ndarray) -> float:
    """Whether every ordered pair follows each other equally often: the p-value of a chi-square test."""
    count = orders.shape[1]
    pairs = np.bincount((orders[:, :-1] * count + orders[:, 1:]).ravel(), minlength=count**2)
    pairs = pairs.reshape(count, count)[~np.eye(count, dtype=bool)]
    return float(stats.chisquare(pairs).pvalue)


@pytest.mark.parametrize(("count", "number"), [(3, 12_000), (4, 12_000), (5, 12_000), (6, 21_600)])
def test_every_permutation_of_a_few_examples_is_equally_likely(count: int, number: int) -> None:
    seen = Counter(map(tuple, permutations(count, number, rounds_for(count)).tolist()))
    observed = [seen[order] for order in itertools.permutations(range(count))]
    assert stats.chisquare(observed).pvalue > 1e-3


def check_uniform(orders: np.ndarray) -> None:
    number, count = orders.shape
    places = np.stack([(orders == value).sum(0) for value in range(count)])
    expected = number / count
    # Rows and columns both sum to the number of orders: (T-1)^2 degrees of freedom, variance scaled by (T-1)/T.
    statistic = ((places - expected) ** 2 / expected).sum() * (count - 1) / count
    assert stats.chi2.sf(statistic, (count - 1) ** 2) > 1e-3
    assert _pair_p_value(orders) > 1e-3
    # Values that follow each other correlate by -1/(T-1), as in any permutation, and not otherwise.
    here, after = orders[:, :-1].ravel(), orders[:, 1:].ravel()
    assert abs(np.corrcoef(here, after)[0, 1] + 1 / (count - 1)) < 4 / np.sqrt(here.size)
    # One order tells nothing of the next.
    assert abs(np.corrcoef(orders[:-1].ravel(), orders[1:].ravel())[0, 1]) < 4 / np.sqrt(orders.size)


@pytest.mark.parametrize(("count", "number"), [(7, 20_000), (17, 10_000), (50, 4_000), (300, 1_000)])
def test_positions_and_neighbours_look_uniform(count: int, number: int) -> None:
    check_uniform(permutations(count, number, rounds_for(count)))


def test_the_epochs_of_a_run_look_uniform() -> None:
    check_uniform(indices(Reshuffled(size=10), np.arange(20_000), 10)[0])


def test_the_quality_test_would_find_too_few_rounds() -> None:
    assert _pair_p_value(permutations(6, 20_000, rounds=6)) < 1e-30
    assert _pair_p_value(permutations(6, 20_000, rounds_for(6))) > 1e-3
    assert [rounds_for(count) for count in (3, 9, 49, 256, 60_000)] == [24, 16, 10, 6, 6]


def test_the_order_shares_no_random_numbers_with_the_updates() -> None:
    """A run folds update numbers into the same key: epoch e must not use the numbers of update e."""
    key = jr.key(5)
    naive = jr.bits(jr.fold_in(key, 0), (rounds_for(64),), jnp.uint32)
    taken = permute(jnp.arange(64), 64, naive)
    assert (np.asarray(taken) == indices(Reshuffled(size=64), [0], 64, seed=5)[0][0]).sum() < 8


def test_the_size_is_checked() -> None:
    with pytest.raises(RequestError, match=r"`Reshuffled.size` must lie in \[1, inf\); got 0\."):
        Reshuffled(size=0)


def test_streams_read_each_piece_of_the_file_on_from_update_to_update() -> None:
    """Against a loop over pieces; 10 rows in 4 pieces of 3, 3, 3 and 1."""
    rows, present, ages = Streams(4).indices(jnp.arange(6), 10, key=jr.key(0))
    pieces = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    age = 0
    for update in range(6):
        turn = update % 3
        for slot, piece in enumerate(pieces):
            assert int(present[update, slot]) == (turn < len(piece))
            if turn < len(piece):
                assert int(rows[update, slot]) == piece[turn]
                age += 1
        assert int(ages[update]) == age
