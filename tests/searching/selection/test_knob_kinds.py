"""Capacity is never chosen on training error, openly or along with another knob."""

import pytest

from gradwise import defaults
from gradwise.records.trial import Trial
from gradwise.runtime.errors import RequestError
from gradwise.searching.selection.knob_kinds import choose_value, kind_at
from gradwise.specs.search_space import write_at

RATE = "optimiser.optimiser.learning_rate"


def trial(number: int, values: dict, score: float, train_loss: float, outcome: str = "finished") -> Trial:
    recipe = defaults.classification()
    for path, value in values.items():
        recipe = write_at(recipe, path, value)
    return Trial(number, recipe, values, outcome, score, loss=score, train_loss=train_loss)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (RATE, "optimiser"),
        ("model.widths", "capacity"),
        ("model.widths.count", "capacity"),
        ("model.widths.1", "capacity"),
        ("model.dropout", "capacity"),
        ("model", "capacity"),
        ("criterion.mixup", "model"),
        ("optimiser", "optimiser"),
        ("model.activation", "model"),
    ],
)
def test_a_knob_a_switch_and_a_part_have_a_kind(path: str, kind: str) -> None:
    assert kind_at(defaults.classification(), path) == kind


def test_the_rate_may_be_chosen_on_training_loss() -> None:
    trials = [
        trial(0, {RATE: 0.1}, 0.3, 0.01),
        trial(1, {RATE: 0.01}, 0.2, 0.05),
        trial(2, {RATE: 1.0}, 0.1, 0.0, "diverged"),
    ]
    assert choose_value(trials, RATE, on="train") == 0.1
    assert choose_value(trials, RATE, on="valid") == 0.01


def test_capacity_is_refused_on_training_error_with_its_name() -> None:
    trials = [trial(n, {"model.widths.each": w}, s, t) for n, (w, s, t) in enumerate([(16, 0.2, 0.3), (64, 0.3, 0.1)])]
    with pytest.raises(RequestError, match=r"`model\.widths\.each` sets capacity") as refused:
        choose_value(trials, "model.widths.each", on="train")
    assert "\n" not in str(refused.value)
    assert choose_value(trials, "model.widths.each", on="valid") == 16


def test_capacity_is_not_chosen_along_with_another_knob() -> None:
    trials = [
        trial(0, {RATE: 0.1, "model.dropout": 0.5}, 0.2, 0.3),
        trial(1, {RATE: 0.01, "model.dropout": 0.0}, 0.3, 0.1),
    ]
    with pytest.raises(RequestError, match=r"differ in `model\.dropout`"):
        choose_value(trials, RATE, on="train")
    assert choose_value(trials, RATE, on="valid") == 0.1


def test_nothing_to_choose_from_and_a_wrong_path() -> None:
    with pytest.raises(RequestError, match="nothing to choose from"):
        choose_value([trial(0, {}, 0.1, 0.1, "failed")], RATE)
    with pytest.raises(RequestError, match="Did you mean"):
        kind_at(defaults.classification(), "model.width")
