"""Splits: exact sizes, classes in proportion, groups whole, time in order, everything from the key alone."""

import math

import jax.random as jr
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gradwise.data.splits import (
    Fold,
    GivenParts,
    GroupHoldOut,
    HoldOut,
    TimeHoldOut,
    _round_shares,
    deal_folds,
    join_parts,
)
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import Classes, Dataset, Numbers
from gradwise.specs.serialisation import from_json, to_json

KEY = jr.key(0)


def numbered(count, classes=None, **more):
    """A data set whose only input is the row's number, so that parts can be traced back."""
    task = Numbers() if classes is None else Classes(np.arange(int(np.max(classes)) + 1))
    targets = np.zeros((count, 1)) if classes is None else np.asarray(classes)
    return Dataset(np.arange(count, dtype=float)[:, None], targets, task, **more)


def rows(part):
    return part.inputs[:, 0].astype(int)


def assert_partition(parts, count):
    together = np.concatenate([rows(part) for part in parts])
    assert sorted(together) == list(range(count))


def test_sixty_twenty_twenty():
    parts = HoldOut()(numbered(1000), key=KEY)
    assert [len(part) for part in parts] == [600, 200, 200]
    assert_partition(parts, 1000)
    assert all((np.diff(rows(part)) > 0).all() for part in parts)
    assert np.abs(np.mean(rows(parts[2])) - 499.5) < 60  # a random part, not the first or last rows


def test_the_same_key_gives_the_same_parts_and_another_key_others():
    classes = np.random.default_rng(0).integers(0, 3, 200)
    for dataset in (numbered(200), numbered(200, classes)):
        first, again, other = (HoldOut()(dataset, key=key) for key in (KEY, jr.key(0), jr.key(1)))
        for part, same, different in zip(first, again, other, strict=True):
            assert (rows(part) == rows(same)).all()
            assert (rows(part) != rows(different)).any()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
    st.floats(0.05, 0.45),
    st.floats(0.05, 0.45),
    st.integers(0, 2**31),
)
def test_every_class_is_in_proportion_within_one(members, valid, test, seed):
    classes = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(members)), members))
    if len(classes) < 3:
        return
    parts = HoldOut(valid, test)(numbered(len(classes), classes), key=jr.key(seed % 1000))
    assert_partition(parts, len(classes))
    sizes = np.array([len(part) for part in parts])
    assert all(
        abs(size - fraction * len(classes)) <= 1 for size, fraction in zip(sizes[1:], (valid, test), strict=True)
    )
    counts = np.array([np.bincount(part.targets, minlength=len(members)) for part in parts]).T
    single = np.asarray(members) == 1
    if single.sum() <= sizes[0]:
        assert (counts[single] == [1, 0, 0]).all()
        sizes = sizes - [single.sum(), 0, 0]
        counts, members = counts[~single], np.asarray(members)[~single]
    if len(counts):
        share = np.outer(members, sizes) / sizes.sum()
        assert (np.abs(counts - share) < 1).all()


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 72), st.integers(0, 72))
@example([6, 2, 8, 8], 19, 4)  # the nearest part is full: another class must give way
def test_rounded_shares_keep_all_sums(members, first, second):
    count = sum(members)
    first = min(first, count)
    second = min(second, count - first)
    totals = [count - first - second, first, second]
    counts = _round_shares(np.array(members), totals)
    assert (counts.sum(0) == totals).all()
    assert (counts.sum(1) == members).all()
    for row, member in enumerate(members):
        for column, total in enumerate(totals):  # floor or ceiling of the exact share, in whole numbers
            assert member * total // count <= counts[row, column] <= -(-member * total // count)


def test_many_classes_are_shared_quickly():
    classes = np.random.default_rng(0).integers(0, 1000, 5000)
    train, valid, test = HoldOut()(numbered(5000, classes), key=KEY)
    assert (len(train), len(valid), len(test)) == (3000, 1000, 1000)


def test_a_class_of_one_is_learned_from():
    classes = np.array([0] * 50 + [1] * 49 + [2])
    for seed in range(5):
        train, _, _ = HoldOut()(numbered(100, classes), key=jr.key(seed))
        assert 2 in train.targets
        assert train.notes == ()


def test_a_class_that_cannot_be_learned_is_said():
    dataset = numbered(6, [0, 0, 0, 1, 1, 1])
    train, _, _ = GivenParts(train=2, valid=2)(dataset, key=KEY)
    assert train.notes == ("no training example of class 1, so it cannot be learned",)


def test_classes_without_repetition_fall_back_to_a_random_split():
    train, valid, test = HoldOut()(numbered(10, np.arange(10)), key=KEY)
    assert [len(train), len(valid), len(test)] == [6, 2, 2]
    assert len(train.notes) == 1


def test_an_official_test_set_is_used_as_it_is():
    official = numbered(7)
    train, valid, test = HoldOut()(numbered(100, test=official), key=KEY)
    assert test is official
    assert (len(train), len(valid)) == (80, 20)
    for split in (GroupHoldOut(), TimeHoldOut()):
        dataset = numbered(100, test=official, groups=np.arange(100) // 10, times=np.arange(100))
        train, valid, test = split(dataset, key=KEY)
        assert test is official
        assert (len(train), len(valid)) == (80, 20)


def test_no_test_part_is_none():
    train, valid, test = HoldOut(test=0)(numbered(10), key=KEY)
    assert test is None
    assert_partition((train, valid), 10)


def test_three_examples_are_enough_and_two_are_not():
    assert [len(part) for part in HoldOut(0.6, 0.39)(numbered(3), key=KEY)] == [1, 1, 1]
    with pytest.raises(RequestError, match=r"^2 examples cannot be split into 3 sets: at least 3 are needed\.$"):
        HoldOut()(numbered(2), key=KEY)
    with pytest.raises(RequestError, match="at least 2 are needed"):
        HoldOut(test=0)(numbered(1), key=KEY)


@pytest.mark.parametrize("split", [HoldOut, GroupHoldOut, TimeHoldOut])
def test_fractions_are_checked(split):
    with pytest.raises(RequestError, match=f"{split.__name__}.valid"):
        split(valid=1.2)
    with pytest.raises(RequestError, match=r"must leave examples for training; got 0\.5 \+ 0\.5"):
        split(valid=0.5, test=0.5)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=3, max_size=40), st.integers(0, 1000))
def test_groups_are_never_split(lengths, seed):
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(lengths)), lengths))
    parts = GroupHoldOut()(numbered(len(groups), groups=groups), key=jr.key(seed))
    assert_partition(parts, len(groups))
    sets = [set(part.groups) for part in parts]
    assert all(sets)
    assert sum(map(len, sets)) == len(set.union(*sets))
    if len(lengths) >= 10:
        slack = max(lengths)
        assert all(
            abs(len(part) - share * len(groups)) <= slack for part, share in zip(parts, (0.6, 0.2, 0.2), strict=True)
        )


def test_groups_by_name_and_large_groups_may_be_tested_on():
    names = np.array(["big"] * 40 + [f"small {i // 10}" for i in range(160)], dtype=object)
    tested = [set(GroupHoldOut()(numbered(200, groups=names), key=jr.key(s))[2].groups) for s in range(20)]
    assert any("big" in groups for groups in tested)
    assert len({frozenset(groups) for groups in tested}) > 5


def test_groups_that_are_missing_or_too_few_are_refused():
    with pytest.raises(RequestError, match="needs groups"):
        GroupHoldOut()(numbered(10), key=KEY)
    with pytest.raises(RequestError, match=r"^2 groups cannot be split into 3 sets"):
        GroupHoldOut()(numbered(10, groups=np.arange(10) % 2), key=KEY)


def test_a_plain_split_of_grouped_data_says_so():
    train, _, _ = HoldOut()(numbered(10, groups=np.arange(10) % 2), key=KEY)
    assert "GroupHoldOut" in train.notes[0]


def test_time_runs_from_training_to_test():
    times = np.random.default_rng(0).permutation(100)
    train, valid, test = TimeHoldOut()(numbered(100, times=times), key=KEY)
    assert (len(train), len(valid), len(test)) == (60, 20, 20)
    assert train.times.max() < valid.times.min() <= valid.times.max() < test.times.min()
    assert (rows(train) == rows(TimeHoldOut()(numbered(100, times=times), key=jr.key(9))[0])).all()


def test_one_moment_stays_together():
    times = np.datetime64("2020-01-01") + np.arange(50) // 7
    train, valid, test = TimeHoldOut()(numbered(50, times=times), key=KEY)
    assert train.times.max() < valid.times.min() <= valid.times.max() < test.times.min()
    assert len(train) == 28  # the boundary nearest to 30


def test_times_that_are_missing_or_all_alike_are_refused():
    with pytest.raises(RequestError, match="needs times"):
        TimeHoldOut()(numbered(10), key=KEY)
    with pytest.raises(RequestError, match=r"^1 of 10 examples have no time"):
        TimeHoldOut()(numbered(10, times=np.array([*range(9), math.nan])), key=KEY)
    with pytest.raises(RequestError, match=r"^1 distinct times cannot be split into 3 sets"):
        TimeHoldOut()(numbered(10, times=np.zeros(10)), key=KEY)


def test_parts_given_by_the_caller():
    train, valid, test = GivenParts(train=3, valid=2)(numbered(7), key=KEY)
    assert [list(rows(part)) for part in (train, valid, test)] == [[0, 1, 2], [3, 4], [5, 6]]
    assert GivenParts(train=3, valid=4)(numbered(7), key=KEY)[2] is None
    with pytest.raises(RequestError, match=r"needs 5 \+ 5 rows; the data have 7"):
        GivenParts(train=5, valid=5)(numbered(7), key=KEY)
    with pytest.raises(RequestError, match="must be a whole number"):
        GivenParts(train=2.5, valid=5)


def test_separate_sets_are_joined_and_taken_apart_again():
    train, valid, test = numbered(5, weights=np.full(5, 2.0)), numbered(3), numbered(2)
    joined, split = join_parts(train, valid, test)
    parts = split(joined, key=KEY)
    for part, whole in zip(parts, (train, valid, test), strict=True):
        assert (part.inputs == whole.inputs).all()
    assert (parts[0].weights == 2).all()
    assert (parts[1].weights == 1).all()
    assert parts[2] is test
    assert join_parts(train, valid)[1](join_parts(train, valid)[0], key=KEY)[2] is None
    with pytest.raises(RequestError, match=r"must have the shape of training examples, \(1,\); got \(2,\)"):
        join_parts(train, Dataset(np.zeros((2, 2)), np.zeros((2, 1)), Numbers()))


def test_sparse_sets_are_split_and_joined():
    from scipy.sparse import csr_matrix, issparse

    dense = np.eye(10)
    dataset = Dataset(csr_matrix(dense), np.zeros((10, 1)), Numbers())
    train, valid, _ = HoldOut()(dataset, key=KEY)
    joined, split = join_parts(train, valid)
    assert issparse(joined.inputs)
    assert (split(joined, key=KEY)[1].inputs.toarray() == valid.inputs.toarray()).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 12), st.integers(3, 150), st.integers(1, 6), st.integers(0, 1000))
def test_folds_cover_each_example_once(count, size, kinds, seed):
    count = min(count, size)
    classes = np.random.default_rng(seed).integers(0, kinds, size)
    for dataset in (numbered(size), numbered(size, classes)):
        found = deal_folds(dataset, count, key=jr.key(seed))
        assert sorted(np.concatenate([own for _, own in found])) == list(range(size))
        for rest, own in found:
            assert sorted([*rest, *own]) == list(range(size))
            assert len(own) in (size // count, -(-size // count))
    for kind in range(kinds):
        members = [int((classes[own] == kind).sum()) for _, own in found]
        assert max(members) - min(members) <= 1


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 5), st.lists(st.integers(1, 9), min_size=6, max_size=30), st.integers(0, 1000))
def test_folds_keep_groups_whole(count, lengths, seed):
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(lengths)), lengths))
    dataset = numbered(len(groups), groups=groups)
    found = deal_folds(dataset, count, key=jr.key(seed))
    assert sorted(np.concatenate([own for _, own in found])) == list(range(len(groups)))
    for rest, own in found:
        assert not set(groups[rest]) & set(groups[own])
    sizes = [len(own) for _, own in found]
    assert max(sizes) - min(sizes) <= max(lengths)
    for number in range(count):
        train, valid, test = Fold(number, count)(dataset, key=jr.key(seed))
        assert not set(train.groups) & set(valid.groups)
        assert not set(test.groups) & (set(train.groups) | set(valid.groups))


@pytest.mark.parametrize(("size", "count"), [(100, 5), (103, 5), (7, 7), (4, 2), (150, 10)])
@pytest.mark.parametrize("classes", [None, 3])
def test_all_folds_have_parts_of_one_size(size, count, classes):
    dataset = numbered(size, None if classes is None else np.arange(size) % classes)
    parts = [Fold(number, count)(dataset, key=KEY) for number in range(count)]
    assert sorted(np.concatenate([rows(test) for _, _, test in parts])) == list(range(size))
    assert len({(len(train), len(valid)) for train, valid, _ in parts}) == 1
    for train, valid, test in parts:
        used = set(rows(train)) | set(rows(valid)) | set(rows(test))
        assert len(used) == len(train) + len(valid) + len(test) >= size - 1


def test_a_fold_is_the_same_whichever_fold_is_asked_for_first():
    dataset = numbered(50)
    backwards = [rows(Fold(number, 5)(dataset, key=KEY)[2]) for number in (4, 3, 2, 1, 0)]
    assert sorted(np.concatenate(backwards)) == list(range(50))
    assert (rows(Fold(4, 5)(dataset, key=KEY)[2]) == backwards[0]).all()
    assert (rows(Fold(4, 5)(dataset, key=jr.key(1))[2]) != backwards[0]).any()


def test_folds_that_cannot_be_made_are_refused():
    with pytest.raises(RequestError, match="10 examples cannot be split into 11 folds"):
        deal_folds(numbered(10), 11, key=KEY)
    with pytest.raises(RequestError, match=r"^1 examples outside a fold cannot be split into 2 sets"):
        Fold(0, 2)(numbered(3), key=KEY)
    with pytest.raises(RequestError, match=r"^1 groups cannot be split into 2 sets"):
        Fold(0, 2)(numbered(10, groups=np.arange(10) % 2), key=KEY)
    with pytest.raises(RequestError, match="3 folds need at least 3 groups; the data have 2"):
        deal_folds(numbered(10, groups=np.arange(10) % 2), 3, key=KEY)
    with pytest.raises(RequestError, match=r"`Fold.number` must lie in \[0, 5\); got 5"):
        Fold(5, 5)
    with pytest.raises(RequestError, match="must be a whole number"):
        Fold(0, 2.5)


@pytest.mark.parametrize(
    "split", [HoldOut(0.1, 0.3), GroupHoldOut(), TimeHoldOut(0.25, 0), Fold(2, 7, 0.1), GivenParts(3, 2)]
)
def test_splits_go_to_json_and_back(split):
    assert from_json(to_json(split)) == split
