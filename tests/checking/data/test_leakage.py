"""Copies are counted exactly, chance repeats are told from leaks, and single columns are scored as closed forms say."""

from typing import Any

import numpy as np
import pytest

from gradwise.checking.data.leakage import (
    ColumnLeak,
    Overlap,
    find_column_leaks,
    find_overlap,
    marks,
    measure_column_leaks,
    measure_overlap,
)
from gradwise.checking.data.predictability import Part, as_part


def _part(name: str, inputs: Any, targets: Any = None, task: str = "numbers") -> Part:
    part = as_part(name, (inputs, targets), task=task)
    assert part is not None
    return part


def test_marks_are_equal_for_equal_rows_only() -> None:
    from scipy.sparse import csr_matrix

    rows = np.array([[0.0, 1.0], [-0.0, 1.0], [np.nan, 1.0], [np.float64("nan"), 1.0], [0.0, 1.0 + 1e-5], [1.0, 0.0]])
    told = marks(rows, False)
    assert told[0] == told[1]
    assert told[2] == told[3]
    assert len(set(told.tolist())) == 4
    whole = np.array([[2**24], [2**24 + 1]])  # equal as 32-bit reals
    assert len(set(marks(whole, True).tolist())) == 2
    dense = np.array([[0, 2, 1], [0, 2, 1], [2, 0, 1]])
    sparse = marks(csr_matrix(dense), False)
    assert sparse[0] == sparse[1] != sparse[2]


def test_near_copies_are_found_at_their_share_and_none_without() -> None:
    random = np.random.default_rng(0)
    train, fresh = random.normal(size=(800, 6)), random.normal(size=(200, 6))
    fresh[:50] = train[:50] + 1e-6 * random.normal(size=(50, 6))
    overlap = measure_overlap(_part("training", train), _part("test", fresh), random)
    assert (overlap.exact, overlap.near, overlap.near_expected) == (0, 0.25, 0.0)
    assert [(finding.code, finding.level) for finding in find_overlap(overlap, 800)] == [("GW201", "warning")]
    clean = measure_overlap(_part("training", train), _part("test", fresh[50:]), random)
    assert find_overlap(clean, 800) == ()


def test_blocks_of_rows_cut_by_the_split_are_a_hint_of_groups() -> None:
    random = np.random.default_rng(0)
    people = np.repeat(np.arange(60), 10)
    inputs = random.normal(size=(60, 12))[people] + 0.02 * random.normal(size=(600, 12))
    order = random.permutation(600)
    mixed = measure_overlap(_part("training", inputs[order[150:]]), _part("test", inputs[order[:150]]), random)
    assert [finding.code for finding in find_overlap(mixed, 450)] == ["GW203"]
    whole = measure_overlap(_part("training", inputs[people < 45]), _part("test", inputs[people >= 45]), random)
    assert find_overlap(whole, 450) == ()


def test_expected_twins_of_a_binary_table_follow_the_closed_form() -> None:
    random = np.random.default_rng(0)
    bits = random.integers(0, 2, (1200, 8))
    overlap = measure_overlap(_part("training", bits[:200]), _part("test", bits[200:]), random)
    assert overlap.expected == pytest.approx(1 - (1 - 1 / 256) ** 199, abs=0.08)
    assert overlap.exact / 1000 == pytest.approx(1 - (1 - 1 / 256) ** 200, abs=0.05)
    assert [finding.level for finding in find_overlap(overlap, 200)] == ["note"]


@pytest.mark.parametrize(
    ("overlap", "level"),
    [
        (Overlap("test", 1000, 20, 20, 0.0, False), "error"),  # 2 % where training has no twin at all
        (Overlap("test", 1000, 1, 1, 0.0, False), "note"),  # one odd row
        (Overlap("test", 1000, 300, 300, 0.29, True), "warning"),  # repeats of the data, cut by the split
        (Overlap("test", 1000, 700, 700, 0.69, True), "error"),  # measured numbers do not repeat so often
        (Overlap("test", 1000, 700, 700, 0.69, False), "note"),  # a discrete table does
        (Overlap("test", 1000, 1000, 0, 0.0, True), "note"),  # the same inputs measured anew
    ],
)
def test_copies_are_judged_against_what_the_table_repeats(overlap: Overlap, level: str) -> None:
    (finding,) = find_overlap(overlap, 5000)
    assert (finding.code, finding.level) == ("GW201", level)


def test_a_monotone_copy_of_a_number_is_an_error_and_a_noisy_one_is_not() -> None:
    random = np.random.default_rng(0)
    inputs = random.normal(size=(600, 5))
    target = inputs @ np.arange(5.0) + random.normal(size=600)
    leaking = np.concatenate([inputs, -np.exp(target)[:, None]], 1)
    told = measure_column_leaks(_part("training", leaking, target), "numbers", random)
    assert told is not None
    assert (told.column, told.exact) == (5, True)
    noisy = np.concatenate([inputs, (target + 0.3 * target.std() * random.normal(size=600))[:, None]], 1)
    told = measure_column_leaks(_part("training", noisy, target), "numbers", random)
    assert told is not None
    # The column explains 1 / 1.09 of the variance, and the mean of four neighbours adds a quarter of the rest.
    residual = 0.09 / 1.09
    assert told.score == pytest.approx(1 - residual * 1.25, abs=0.02)
    assert find_column_leaks(told, ()) == ()


def test_a_column_with_class_noise_is_scored_by_its_purity() -> None:
    random = np.random.default_rng(0)
    classes = random.integers(0, 4, 2000)
    column = np.where(random.random(2000) < 0.2, random.integers(0, 4, 2000), classes)
    inputs = np.concatenate([random.normal(size=(2000, 3)), column[:, None]], 1)
    told = measure_column_leaks(_part("training", inputs, classes, "classes"), "classes", random)
    assert told is not None
    assert told.column == 3
    assert told.score == pytest.approx(0.85, abs=0.03)  # 1 - 0.2 * 3 / 4
    assert not told.exact


@pytest.mark.parametrize(
    ("giving", "level"),
    [
        (ColumnLeak(1, 1.0, True, 0.9, 100, 5, True), "error"),
        (ColumnLeak(1, 1.0, True, 0.9, 100, 5, False), "warning"),  # a place of a sequence may well be the answer
        (ColumnLeak(1, 0.995, False, 0.6, 100, 5, True), "warning"),
        (ColumnLeak(1, 0.995, False, 0.99, 100, 5, True), ""),  # an easy problem
        (ColumnLeak(1, 0.96, False, 0.6, 100, 5, True), ""),
        (ColumnLeak(1, 0.96, False, 0.99, 100, 5, True, ordered=True), "warning"),  # a row number of sorted files
    ],
)
def test_giving_is_judged_beside_the_other_columns(giving: ColumnLeak, level: str) -> None:
    assert [(finding.level, finding.where) for finding in find_column_leaks(giving, ("a", "b"))] == (
        [(level, "b")] if level else []
    )


def test_a_missing_value_does_not_hide_its_column_behind_the_units_of_another() -> None:
    random = np.random.default_rng(0)
    classes = random.integers(0, 2, 300)
    told = classes + 0.2 * random.normal(size=300)  # in units of 1, beside another column in millions
    table = np.stack([classes, told, 1e6 * random.normal(size=300)], axis=1)
    whole = measure_column_leaks(Part("train", table, classes, (3,)), "classes", np.random.default_rng(1))
    table[7, 1] = np.nan
    missing = measure_column_leaks(Part("train", table, classes, (3,)), "classes", np.random.default_rng(1))
    assert whole is not None
    assert missing is not None
    assert missing.others > 0.95
    assert abs(missing.others - whole.others) < 0.02
