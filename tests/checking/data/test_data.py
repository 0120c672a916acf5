"""Planted faults in real data are found and placed; the same data without them, and unusual sound data, are not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from gradwise.checking.data.columns import ColumnsMeasured
from gradwise.checking.data.data import DataMeasured, PartShift, find_data, from_dataset, measure_data
from gradwise.checking.data.leakage import Overlap
from gradwise.data.splits import GroupHoldOut, HoldOut
from gradwise.records.finding import Finding
from gradwise.records.plain_values import to_values
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import Classes, Column, Dataset

KEY = jax.random.key(0)
Pair = tuple[Any, Any]


def _digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    inputs, targets = load_digits(return_X_y=True)
    return inputs / 16, targets


def _split(inputs: Any, targets: Any, seed: int = 0) -> tuple[Pair, Pair]:
    order = np.random.default_rng(seed).permutation(len(inputs))
    cut = len(inputs) // 4
    return (inputs[order[cut:]], targets[order[cut:]]), (inputs[order[:cut]], targets[order[:cut]])


def _found(train: Pair, test: Pair | None = None, **more: Any) -> dict[str, Finding]:
    """Findings by code, notes aside unless they are asked for by name."""
    measured = measure_data(train, None, test, key=KEY, **more)
    json.dumps(to_values(measured.evidence()))
    return {finding.code: finding for finding in find_data(measured)}


def _serious(train: Pair, test: Pair | None = None, **more: Any) -> dict[str, str]:
    found = _found(train, test, **more)
    return {code: finding.level for code, finding in found.items() if finding.level != "note"}


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "digits", "diabetes"])
def test_sound_tables_raise_no_warning(name: str) -> None:
    from sklearn import datasets

    train, test = _split(*getattr(datasets, f"load_{name}")(return_X_y=True))
    assert _serious(train, test, scaled=False) == {}


@pytest.mark.parametrize("name", ["spambase", "mammography", "letter", "dna", "shuttle", "reg_concrete", "reg_naval"])
def test_real_tables_that_repeat_rows_or_lean_to_one_class_raise_no_error(data_folder: Path, name: str) -> None:
    held = np.load(data_folder / "tabular" / f"{name}.npz")
    found = _serious(*_split(held["X"], held["y"]), scaled=False)
    assert "error" not in found.values()


def test_test_rows_in_training_are_counted_and_placed() -> None:
    (inputs, targets), test = _split(*_digits())
    leaked = (np.concatenate([inputs, test[0][:40]]), np.concatenate([targets, test[1][:40]]))
    finding = _found(leaked, test)["GW201"]
    assert finding.level == "error"
    assert finding.evidence["exact"] == finding.evidence["copied"] == 40
    assert finding.where.startswith(f"test row 0 = training row {len(inputs)}, 1 = training row {len(inputs) + 1}")
    assert _serious((inputs, targets), test) == {}


@pytest.mark.parametrize("rolled", [1, -2])
def test_targets_out_of_step_are_an_error_that_names_the_shift(rolled: int) -> None:
    train, _ = _split(*_digits())
    finding = _found((train[0], np.roll(train[1], rolled)))["GW210"]
    assert (finding.level, finding.evidence["shift"]) == ("error", rolled)
    assert finding.next.endswith(f"np.roll(targets, {-rolled})")


def test_targets_shuffled_apart_are_a_warning_and_no_error() -> None:
    inputs, targets = _digits()
    shuffled = np.random.default_rng(0).permutation(targets)
    assert _serious((inputs, shuffled)) == {"GW210": "warning"}


def test_a_column_that_is_the_target_in_disguise_is_named() -> None:
    inputs, targets = _digits()
    leaking = np.concatenate([inputs, ((targets * 7) % 10)[:, None]], 1)
    names = [*(f"pixel{number}" for number in range(64)), "code"]
    finding = _found((leaking, targets), columns=names)["GW202"]
    assert (finding.level, finding.where) == ("error", "code")


def test_sorted_batches_are_an_error_and_shuffled_ones_are_not() -> None:
    inputs, targets = _digits()
    order = np.argsort(targets, kind="stable")
    sorted_ = targets[order]
    batches = [sorted_[start : start + 32] for start in range(0, 640, 32)]
    assert _serious((inputs[order], sorted_), batches=batches) == {"GW208": "error"}
    mixed = np.random.default_rng(0).permutation(targets)
    assert _found((inputs[order], sorted_), batches=np.split(mixed[:640], 20))["GW208"].level == "note"
    assert "GW208" not in _found((inputs, targets), batches=np.split(mixed[:640], 20))


def test_labels_from_one_are_an_error_and_marks_to_leave_out_are_not() -> None:
    inputs, targets = _digits()
    finding = _found((inputs, targets + 1), outputs=10)["GW211"]
    assert (finding.level, finding.next) == ("error", "targets = targets - 1")
    assert _serious((inputs, targets), outputs=10) == {}
    assert _serious((inputs, np.where(targets == 3, -100, targets)), outputs=10) == {"GW211": "warning"}
    assert _serious((inputs, np.where(targets == 3, 11, targets % 9)), outputs=9)["GW211"] == "warning"
    assert _serious((inputs, targets), outputs=8)["GW211"] == "error"
    assert "GW211" not in _found((inputs, targets % 2), outputs=1)


def test_a_value_that_is_no_number_is_placed_by_row_and_column() -> None:
    inputs, targets = _digits()
    inputs = inputs.copy()
    inputs[17, 5] = np.nan
    finding = _found((inputs, targets))["GW209"]
    assert (finding.level, finding.where) == ("error", "training row 17")
    assert "column 5" in finding.what
    assert "GW209" not in _found((inputs, targets), missing_allowed=True)
    inputs[17, 5] = np.inf
    assert "GW209" in _found((inputs, targets), missing_allowed=True)


def test_a_test_part_from_elsewhere_is_found_by_a_shift_of_means() -> None:
    train, test = _split(*_digits())
    moved = test[0].copy()
    moved[:, 20] += 3.0
    finding = _found(train, (moved, test[1]))["GW213"]
    assert (finding.level, finding.where) == ("warning", "column 20")
    assert finding.evidence["area"] > 0.95


def test_noisy_labels_are_noted_at_about_their_rate_and_placed() -> None:
    inputs, targets = _digits()
    random = np.random.default_rng(0)
    flipped = np.flatnonzero(random.random(len(targets)) < 0.1)
    noisy = targets.copy()
    noisy[flipped] = (noisy[flipped] + random.integers(1, 10, len(flipped))) % 10
    finding = _found((inputs, noisy))["GW206"]
    assert finding.level == "note"
    assert 0.07 < finding.evidence["denied"] < 0.12
    assert len(set(finding.evidence["rows"]) & set(flipped.tolist())) >= 9  # of 10; a clean digit may be odd
    assert "GW206" not in _found((inputs, targets))


def test_imbalance_and_missing_classes() -> None:
    random = np.random.default_rng(0)
    classes = (np.arange(2000) < 12).astype(int)
    inputs = random.normal(size=(2000, 4)) + classes[:, None]
    order = random.permutation(2000)
    found = _found((inputs[order], classes[order]))
    assert found["GW207"].evidence["rare"] == 12
    inputs, targets = _digits()
    known = targets < 9
    finding = _found((inputs[known], targets[known]), (inputs[~known], targets[~known]))["GW212"]
    assert finding.evidence["unseen"] == [9]


def _unusual() -> dict[str, dict[str, Any]]:
    random = np.random.default_rng(0)
    plain = random.normal(size=(300, 8))
    tokens = random.integers(0, 20, (300, 12))
    grid = np.linspace(0, 1, 100)[:, None]
    measure = lambda: np.sin(6 * grid) + 0.1 * random.normal(size=grid.shape)  # noqa: E731
    walk = np.cumsum(random.normal(size=600))
    returns = random.normal(size=402)
    bits = random.integers(0, 2, (600, 6))
    rare = (random.random(1000) < 0.02).astype(int)
    return {
        "auto-encoder": {"train": (plain, plain)},
        "language model": {"train": (tokens[:, :-1], tokens[:, 1:])},
        "recall of the first symbol": {"train": (tokens, tokens[:, 0])},
        "numbers of examples as targets": {
            "train": (plain, np.arange(300)),
            "batches": np.split(np.arange(300), 10),
        },
        "one design measured twice": {"train": (grid, measure()), "test": (grid, measure())},
        "stream": {"train": (walk[:-1, None], walk[1:]), "batches": np.split(walk[:576], 18)},
        "forecast of noise": {"train": (np.stack([returns[1:-1], returns[:-2]], 1), returns[2:])},
        "binary table": {"train": (bits[:400], bits[:400].sum(1) % 2), "test": (bits[400:], bits[400:].sum(1) % 2)},
        "balanced batches of rare classes": {
            "train": (random.normal(size=(1000, 3)) + rare[:, None], rare),
            "batches": [np.repeat([0, 1], 16)] * 20,
        },
        "huge units": {"train": (1e6 * plain, plain @ np.arange(8.0) + random.normal(size=300))},
        "random labels": {"train": (plain, random.integers(0, 3, 300))},
        "one column": {"train": (plain[:, :1], 2 * plain[:, :1])},
        "no targets": {"train": (plain, None), "test": (plain[:50] + 1.0, None)},
        "few rows": {"train": (np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), np.array([0, 1, 1, 0]))},
    }


@pytest.mark.parametrize("name", list(_unusual()))
def test_unusual_but_sound_data_raise_no_error(name: str) -> None:
    given = _unusual()[name]
    train = given.pop("train")
    test = given.pop("test", None)
    assert "error" not in _serious(train, test, **given).values()


def _table(groups: np.ndarray) -> Dataset:
    """A table with a category, missing values and groups whose rows resemble one another."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(40, 3))
    inputs = centres[groups] + 0.3 * random.normal(size=(len(groups), 3))
    inputs[:, 2] = random.integers(0, 3, len(groups))
    inputs[::17, 0] = np.nan
    columns = (Column("size"), Column("weight"), Column("kind", "category", ("a", "b", "c")))
    classes = (centres[groups, 1] > 0).astype(int)
    return Dataset(inputs, classes, Classes(np.array(["no", "yes"])), columns, groups=groups)


@pytest.mark.parametrize(("split", "codes"), [(HoldOut(), {"GW203"}), (GroupHoldOut(), set())])
def test_a_data_set_gives_its_parts_and_groups(split: Any, codes: set[str]) -> None:
    dataset = _table(np.repeat(np.arange(40), 10))
    measured = measure_data(**from_dataset(dataset, split(dataset, key=KEY)), key=KEY)
    assert measured.names == ("size", "weight", "kind")
    assert set(measured.rows) == {"training", "validation", "test"}
    assert {finding.code for finding in find_data(measured) if finding.code in ("GW203", "GW209", "GW204")} == codes


def test_findings_come_from_numbers_alone() -> None:
    quiet = ColumnsMeasured(np.zeros(2), np.ones(2), np.ones(2, bool), np.zeros(2, bool), True, False)
    make: Callable[..., DataMeasured] = lambda **more: DataMeasured(  # noqa: E731
        "classes", {"training": 100, "test": 100}, ("a", "b"), quiet, **more
    )
    assert find_data(make()) == ()
    copied = Overlap("test", 100, 30, 30, 0.0, True, ((3, 4),))
    far = PartShift("test", 0.99, 9.0, 1, 2.5)
    found = find_data(make(overlaps=(copied,), elsewhere=(far,), shared={"test": (3, 0.5)}))
    assert [(finding.level, finding.code, finding.where) for finding in found] == [
        ("error", "GW201", "test row 3 = training row 4"),
        ("warning", "GW203", "test"),
        ("warning", "GW213", "b"),
    ]


def test_parts_of_unequal_length_are_refused() -> None:
    with pytest.raises(RequestError, match="the test set has 3 rows of inputs but 2 targets"):
        measure_data((np.zeros((4, 2)), np.zeros(4)), None, (np.zeros((3, 2)), np.zeros(2)), key=KEY)
    with pytest.raises(RequestError, match="must be an array of numbers"):
        measure_data((np.array([["a"]]), None), key=KEY)


def test_measuring_depends_on_the_key_alone() -> None:
    train, test = _split(*_digits())
    one, two = (measure_data(train, None, test, key=KEY).evidence() for _ in range(2))
    assert to_values(one) == to_values(two)
