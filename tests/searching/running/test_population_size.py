"""How many networks train at once: given, by size, or by measuring."""

import dataclasses
import pickle
from typing import Any

import jax
import pytest

from gradwise.models.mlp import Mlp
from gradwise.searching.running.population_size import AbstractSlots, BySize, Given, Measured, count_parameters
from gradwise.training.population import Population, enter
from tests.searching import tiny


@pytest.fixture(scope="module")
def placed() -> dict[int, tuple[Any, ...]]:
    """Networks of several widths, ready to enter, with their examples."""
    data = tiny.data()
    train, valid = data.place(tiny.recipe().scaler)

    def entering(width: int) -> tuple[Any, ...]:
        recipe = dataclasses.replace(tiny.recipe(), model=Mlp(widths=(width,), dropout=0.0))
        return (*enter(recipe, train, valid, outputs=3, key=data.key), train, valid)

    return {width: entering(width) for width in (8, 64, 400, 800)}


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """An update of one network takes a second; more at once take two, or ten where they are wide; two of them 1.5."""
    asked: list[tuple[int, int]] = []

    def seconds(population: Population, updates: int = 16) -> float:
        size = count_parameters(population.states) // population.slots
        asked.append((size, population.slots))
        return {1: 1.0, 2: 1.5}.get(population.slots, 10.0 if size > 500 else 2.0)

    monkeypatch.setattr(Population, "seconds_per_update", seconds)
    return asked


def test_given_is_given(placed: dict[int, tuple[Any, ...]]) -> None:
    assert Given(5).choose(*placed[8], 100) == 5


def test_by_size_small_ones_share_a_core(placed: dict[int, tuple[Any, ...]]) -> None:
    assert [BySize().choose(*placed[8], waiting) for waiting in (1, 2, 3, 5, 100)] == [8] * 5
    assert BySize().choose(*placed[400], 100) == 1


def test_by_size_an_accelerator_takes_all(placed: dict[int, tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert [BySize().choose(*placed[400], waiting) for waiting in (1, 9, 33, 48, 1000)] == [8, 16, 48, 48, 256]


def test_measuring_picks_the_faster(placed: dict[int, tuple[Any, ...]], timed: list[tuple[int, int]]) -> None:
    slots = Measured()
    assert slots.choose(*placed[64], 100) == 1  # 515 parameters: ten seconds for eight are more than one for each
    assert slots.choose(*placed[8], 100) == 8


def test_what_was_measured_answers_for_others(placed: dict[int, tuple[Any, ...]], timed: list[tuple[int, int]]) -> None:
    """What is too large to share a core is so at any larger size; what is small enough, at any smaller one."""
    slots = Measured((1, 8))
    assert slots.choose(*placed[400], 100) == 1
    measured = len(timed)
    assert measured == 2
    assert slots.choose(*placed[800], 100) == 1
    assert slots.choose(*placed[400], 100) == 1
    assert len(timed) == measured
    assert slots.choose(*placed[8], 100) == 8
    assert len(timed) == measured + 2
    assert slots.told[0] == {"parameters": 3203, "seconds_per_update": {1: 1.0, 8: 1.25}, "slots": 1}


def test_the_choice_for_one_size_is_made_once(placed: dict[int, tuple[Any, ...]], timed: list[tuple[int, int]]) -> None:
    """Also where the fewest are more than one, as on an accelerator."""
    slots = Measured((2, 8))
    assert slots.choose(*placed[400], 100) == 2  # 1.5/2 for each is less than 10/8
    assert slots.choose(*placed[400], 100) == 2
    assert len(timed) == 2
    assert slots.choose(*placed[8], 100) == 8
    assert slots.choose(*placed[8], 100) == 8
    assert len(timed) == 4


def test_no_more_than_two_sizes_are_timed(placed: dict[int, tuple[Any, ...]], timed: list[tuple[int, int]]) -> None:
    """Timing a size takes two compilations; then the nearest size that was timed answers."""
    slots = Measured((1, 8))
    slots.choose(*placed[8], 100)
    slots.choose(*placed[800], 100)
    assert len(timed) == 4
    assert slots.choose(*placed[64], 100) == 8  # 515 parameters: 67 are nearer than 6403, on the scale of factors
    assert slots.choose(*placed[400], 100) == 1
    assert len(timed) == 4


def test_few_waiting_need_no_measuring(placed: dict[int, tuple[Any, ...]], timed: list[tuple[int, int]]) -> None:
    assert Measured((1, 8)).choose(*placed[8], 1) == 1
    assert Measured((8,)).choose(*placed[8], 100) == 8
    assert timed == []
    assert Measured((1, 8)).choose(*placed[8], 3) == 4  # a population no larger than what waits
    assert [count for _, count in timed] == [1, 4]


def test_measuring_is_real(placed: dict[int, tuple[Any, ...]]) -> None:
    slots: AbstractSlots = Measured((1, 2))
    assert slots.choose(*placed[8], 2) in (1, 2)
    (told,) = slots.told  # type: ignore[attr-defined]
    assert all(0 < seconds < 1 for seconds in told["seconds_per_update"].values())
    assert pickle.loads(pickle.dumps(slots)).told == [told]  # what is known goes to workers
