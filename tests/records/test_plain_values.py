"""Frozen dataclasses become JSON values and come back equal; what does not fit is named with its place."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import numpy as np
import pytest

from gradwise import defaults
from gradwise.records.plain_values import from_values, to_values
from gradwise.specs.recipe import Recipe


@dataclass(frozen=True)
class _Layer:
    name: str
    width: int
    means: tuple[float, ...] = ()


@dataclass(frozen=True)
class _Whole:
    layers: tuple[_Layer, ...]
    score: float
    ends: tuple[float, float] = (math.nan, math.inf)
    by_name: Mapping[str, _Layer] = field(default_factory=dict)
    by_number: dict[int, list[bool]] = field(default_factory=dict)
    best: _Layer | None = None
    label: str | int | float = ""
    about: Any = None
    words: tuple[str, ...] = ("some",)
    network: Any = field(default=None, compare=False)  # not written


WHOLE = _Whole(
    layers=(_Layer("a", 3, (0.1 + 0.2, -math.inf)), _Layer("b", 4)),
    score=math.nan,
    by_name={"c": _Layer("c", 5)},
    by_number={7: [True, False]},
    best=_Layer("d", 6),
    label=3,
    about={"free": [1, "x"]},
    words=(),  # although not empty by default
    network=object(),
)


def test_a_record_comes_back_equal_through_json() -> None:
    text = json.dumps(to_values(WHOLE), allow_nan=False)
    assert from_values(_Whole, json.loads(text)) == WHOLE


def test_empty_fields_with_a_default_are_omitted_and_nan_is_null() -> None:
    plain = to_values(_Whole((), math.nan))
    assert plain == {"layers": [], "score": None, "ends": [None, "inf"], "words": ["some"]}
    assert from_values(_Whole, plain) == _Whole((), math.nan)


def test_numbers_of_numpy_are_plain_numbers() -> None:
    assert to_values([np.float32(0.5), np.arange(2), np.bool_(True)]) == [0.5, [0, 1], True]


def test_a_recipe_within_a_record_is_read_as_a_recipe() -> None:
    @dataclass(frozen=True)
    class Holder:
        recipe: Recipe

    recipe = defaults.classification()
    again = from_values(Holder, json.loads(json.dumps(to_values(Holder(recipe)))))
    assert eqx.tree_equal(again.recipe, recipe)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"score": "high"}, "`score`: expected a number, got 'high'"),
        ({"score": True}, "`score`: expected a number, got 'True'"),
        ({"layers": 3}, "`layers`: expected a list"),
        ({"layers": [{"name": "a", "width": 1.5}]}, "`layers.0.width`: expected a whole number"),
        ({"layers": [{"name": "a"}]}, r"`layers.0`: _Layer lacks \['width'\]"),
        ({"layers": [[]]}, "`layers.0`: expected the fields of _Layer"),
        ({"ends": [1.0]}, "`ends`: expected 2 values, got 1"),
        ({"by_name": []}, "`by_name`: expected names and values"),
        ({"best": 3}, "`best`: expected the fields of _Layer"),
        ({"label": []}, "`label`: expected text.*; expected a whole number.*; expected a number"),
        ({"other": 1}, r"_Whole has no \['other'\]"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        from_values(_Whole, {**to_values(WHOLE), **change})


def test_what_json_cannot_hold_is_refused_when_written() -> None:
    with pytest.raises(TypeError, match="a object cannot be written as JSON"):
        to_values({"a": object()})
