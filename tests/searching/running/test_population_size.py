"""How many networks train at once: given, or by size."""

import dataclasses
from typing import Any

import jax
import pytest

from gradwise.models.mlp import Mlp
from gradwise.searching.running.population_size import BySize, Given
from gradwise.training.population import enter
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


def test_given_is_given(placed: dict[int, tuple[Any, ...]]) -> None:
    assert Given(5).choose(*placed[8], 100) == 5


def test_by_size_small_ones_share_a_core(placed: dict[int, tuple[Any, ...]]) -> None:
    assert [BySize().choose(*placed[8], waiting) for waiting in (1, 2, 3, 5, 100)] == [8] * 5
    assert BySize().choose(*placed[400], 100) == 1


def test_by_size_an_accelerator_takes_all(placed: dict[int, tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert [BySize().choose(*placed[400], waiting) for waiting in (1, 9, 33, 48, 1000)] == [8, 16, 48, 48, 256]
