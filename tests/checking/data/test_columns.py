"""Units, constants, identifiers and values that are no numbers, on columns whose faults are planted."""

from typing import Any

import numpy as np
import pytest

from gradwise.checking.data.columns import ColumnsMeasured, find_columns, measure_columns
from gradwise.checking.data.predictability import Part, as_part

RANDOM = np.random.default_rng(0)
PLAIN = RANDOM.normal(size=(300, 4))
NAMES = ("a", "b", "c", "d")


def _part(inputs: Any, name: str = "training", targets: Any = None) -> Part:
    part = as_part(name, (inputs, targets), task="numbers")
    assert part is not None
    return part


def _codes(inputs: Any, other: Any = None, names: tuple[str, ...] = NAMES, **more: Any) -> list[tuple[str, str]]:
    parts = (_part(inputs),) if other is None else (_part(inputs), _part(other, "test"))
    columns = measure_columns(parts, np.random.default_rng(0), names=names, **more)
    return [(finding.code, finding.where) for finding in find_columns(columns, names)]


def test_columns_are_described_as_numpy_does() -> None:
    columns = measure_columns((_part(PLAIN),), np.random.default_rng(0))
    np.testing.assert_allclose(columns.mean, PLAIN.mean(0))
    np.testing.assert_allclose(columns.spread, PLAIN.std(0))
    assert not columns.constant.any()
    assert columns.varies.all()
    assert find_columns(columns, NAMES) == ()


@pytest.mark.parametrize(
    ("inputs", "where"),
    [
        (PLAIN * np.array([1, 1, 1, 500.0]), "d"),  # one column in small units
        (PLAIN + np.array([0, 0, 290.0, 0]), "c"),  # far from zero, as temperatures in kelvin
        (PLAIN * 255, "inputs"),  # all large, as pixels from 0 to 255
        (PLAIN * 1e-4, "inputs"),
    ],
)
def test_faults_of_units_are_one_warning_at_the_worst_column(inputs: np.ndarray, where: str) -> None:
    assert _codes(inputs) == [("GW204", where)]
    assert _codes(inputs, seen=False) == []  # a scaler comes first


def test_pixels_and_rare_symbols_are_not_taken_for_faults_of_units() -> None:
    image = RANDOM.uniform(size=(300, 4, 4))
    image[:, 0] = (RANDOM.random((300, 4)) < 0.05) * 0.004  # a border that is hardly ever drawn on
    assert _codes(image, names=()) == []
    assert _codes(image.reshape(300, -1), names=()) == []
    assert _codes(RANDOM.integers(0, 5000, (300, 4))) == []  # symbols: an embedding reads them
    assert _codes(RANDOM.integers(0, 255, (300, 4, 4)).astype(np.uint8), names=()) == [("GW204", "inputs")]


def test_constant_columns_are_counted_though_a_sample_misses_a_change() -> None:
    inputs = np.concatenate([np.repeat(PLAIN, 20, axis=0), np.zeros((6000, 2))], 1)
    inputs[4321, 4] = 1.0
    inputs[:, 5] = np.nan
    columns = measure_columns((_part(inputs),), np.random.default_rng(0), missing_allowed=True)
    assert np.flatnonzero(columns.constant).tolist() == [5]
    from scipy.sparse import csr_matrix

    inputs[:, 5] = 0.0
    sparse = measure_columns((_part(csr_matrix(inputs)),), np.random.default_rng(0))
    assert np.flatnonzero(sparse.constant).tolist() == [5]
    assert [finding.code for finding in find_columns(sparse, NAMES)] == ["GW205"]


def test_values_that_are_no_numbers_are_placed_in_each_part() -> None:
    train, test, targets = PLAIN.copy(), PLAIN[:50].copy(), PLAIN[:, 0].copy()
    train[[7, 9], [2, 1]] = np.nan, np.inf
    test[3, 3] = -np.inf
    targets[11] = np.nan
    parts = (_part(train, targets=targets), _part(test, "test"))
    columns = measure_columns(parts, np.random.default_rng(0))
    assert columns.broken == (
        ("training", "inputs", 2, (7, 9), 2),
        ("training", "targets", 1, (11,), 0),
        ("test", "inputs", 1, (3,), 3),
    )
    allowed = measure_columns(parts, np.random.default_rng(0), missing_allowed=True)
    assert [each[:4] for each in allowed.broken] == [("training", "inputs", 1, (9,)), ("test", "inputs", 1, (3,))]


def test_row_numbers_and_shared_identifiers_are_hints_of_groups() -> None:
    numbered = np.concatenate([PLAIN, RANDOM.permutation(300)[:, None]], 1)
    names = (*NAMES, "when")
    assert _codes(numbered[:200], numbered[200:], names, seen=False) == [("GW203", "when")]
    assert _codes(numbered[:200], numbered[200:], names, seen=False, dates={4}) == []
    people = numbered.copy()
    people[:, 4] = RANDOM.integers(0, 30, 300)
    assert _codes(people[:200], people[200:], (*NAMES, "patient_id"), seen=False) == [("GW203", "patient_id")]
    assert _codes(people[:200], people[200:], (*NAMES, "age"), seen=False) == []


def test_findings_come_from_numbers_alone() -> None:
    mark = np.array([False, True])
    columns = ColumnsMeasured(np.zeros(2), np.array([1.0, 0.0]), ~mark, mark, True, False)
    (finding,) = find_columns(columns, ("a", "b"))
    assert (finding.code, finding.level, finding.where, finding.evidence["columns"]) == ("GW205", "note", "b", [1])
