"""Batches in order are told from random ones, from balanced ones and from streams; diversity has a closed form."""

import numpy as np
import pytest

from gradwise.checking.data.example_order import Order, find_order, measure_order


def _levels(targets: np.ndarray | None, batches: list[np.ndarray], task: str) -> list[str]:
    told = measure_order(targets, batches, task, np.random.default_rng(0))
    return [finding.level for finding in find_order(told)]


def test_diversity_of_pure_and_of_mixed_batches_is_exact() -> None:
    classes = np.tile(np.arange(4), 100)
    told = measure_order(
        classes, [np.repeat(number, 20) for number in (0, 1, 2, 3)], "classes", np.random.default_rng(0)
    )
    assert told is not None
    assert told.diversity == 0.0
    assert told.chance < 1e-6
    mixed = measure_order(classes, list(np.split(classes, 20)), "classes", np.random.default_rng(0))
    assert mixed is not None
    assert mixed.diversity == pytest.approx(0.75 / (0.75 * 19 / 20), rel=0.02)  # 1 - 1/K, against random batches of 20
    assert mixed.chance == 1.0


def test_random_batches_raise_nothing_over_many_seeds() -> None:
    for seed in range(30):
        random = np.random.default_rng(seed)
        classes = (random.random(640) < 0.1).astype(int)
        assert _levels(classes, np.split(random.permutation(classes), 20), "classes") == []
        numbers = random.normal(size=(640, 1)) ** 3
        assert _levels(numbers, np.split(random.permutation(numbers), 20), "numbers") == []


def test_sorted_classes_and_sorted_numbers_are_errors_even_in_part_of_an_epoch() -> None:
    random = np.random.default_rng(0)
    classes = np.sort(random.integers(0, 2, 2000))
    assert _levels(classes, [classes[start : start + 32] for start in range(0, 320, 32)], "classes") == ["error"]
    assert _levels(classes, [classes[start : start + 2] for start in range(0, 320, 2)], "classes") == ["error"]
    numbers = np.sort(random.normal(size=(640, 1)), axis=0)
    assert _levels(numbers, np.split(numbers, 20), "numbers") == ["error"]
    assert _levels(None, np.split(numbers[:, 0], 20), "numbers") == ["error"]


def test_orders_that_may_be_meant_are_no_errors() -> None:
    random = np.random.default_rng(0)
    walk = np.cumsum(random.normal(size=2000))[:, None]
    assert _levels(walk, np.split(walk, 50), "numbers") == ["warning"]  # a stream
    many = random.integers(0, 100, 3000)
    pairs = [np.repeat(random.choice(100, 6, replace=False), 4) for _ in range(40)]
    assert "error" not in _levels(many, pairs, "classes")  # a few of each class, to be told apart within the batch
    rare = (random.random(2000) < 0.02).astype(int)
    assert _levels(rare, [np.repeat([0, 1], 16)] * 20, "classes") == []  # balanced on purpose
    assert _levels(rare, [np.zeros(1, int)] * 3, "classes") == []  # too few to tell
    numbers = random.normal(size=(640, 1))
    scaled = np.split(random.permutation(numbers[:, 0]) / 4, 20)
    assert _levels(numbers, scaled, "numbers") == []  # batches in other units


def test_rows_in_order_are_a_note() -> None:
    assert _levels(np.repeat(np.arange(3), 50), [], "classes") == ["note"]
    assert _levels(np.tile(np.arange(3), 50), [], "classes") == []
    assert _levels(np.linspace(0, 1, 100)[:, None], [], "numbers") == ["note"]


def test_findings_come_from_numbers_alone() -> None:
    assert find_order(None) == ()
    (finding,) = find_order(Order(20, 0.1, 30.0, 1e-30, 0.2, 0.0, 1.0, True))
    assert (finding.code, finding.level, finding.where) == ("GW208", "error", "batches")
    assert find_order(Order(20, 0.1, 30.0, 1e-30, 0.2, 0.0, 1.0, False))[0].level == "warning"
    assert find_order(Order(20, 0.97, 5.0, 1e-7, 0.2, 0.0, 1.0, True)) == ()
