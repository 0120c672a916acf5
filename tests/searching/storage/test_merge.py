"""Joining studies: every trial once, each with the seed and the number it came from."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gradwise import defaults
from gradwise.records.trial import Trial
from gradwise.runtime.errors import RequestError
from gradwise.searching.storage.merge import merge_studies, origin
from gradwise.searching.storage.study_identity import StudyIdentity
from gradwise.searching.storage.study_store import Store
from gradwise.searching.strategies.random_search import Random, chosen_values
from gradwise.specs.priors import LogUniform
from gradwise.specs.search_space import Space, dimension

RATE = "optimiser.optimiser.learning_rate"
RECIPE = defaults.classification()
SPACE = Space(RECIPE, (dimension(RECIPE, RATE, LogUniform(1e-4, 1e-1)),))


def make(path: Path, seed: int, numbers: dict[int, float], **changes: Any) -> Store:
    """A study whose trial n learned at this rate; its score tells which it is."""
    about = dataclasses.replace(StudyIdentity(SPACE, seed, Random(), "digest", "classes", "error_rate"), **changes)
    store = Store.open(path, create=True, about=about)
    for number, rate in numbers.items():
        recipe = SPACE.recipe_of({RATE: rate})
        store.add(Trial(number, recipe, chosen_values(SPACE, recipe), "patience", score=seed + rate))
    store.spend(10.0 * (seed + 1))
    return store


@pytest.fixture
def keep() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def test_numbers_stay_unique_and_their_origin_known(tmp_path: Path, keep: contextlib.ExitStack) -> None:
    one = keep.enter_context(make(tmp_path / "a", 1, {0: 0.01, 1: 0.02, 4: 0.03}))
    other = keep.enter_context(make(tmp_path / "b", 2, {0: 0.04, 1: 0.05}))
    both = keep.enter_context(merge_studies([one, other], tmp_path / "both"))
    assert {trial.number: trial.score for trial in both.trials()} == {0: 1.01, 1: 1.02, 4: 1.03, 5: 2.04, 6: 2.05}
    assert both.seconds == 50.0
    for trial in both.trials():
        seed, number = origin(both.about, trial.number)
        source = {1: one, 2: other}[seed]
        found = next(t for t in source.trials() if t.number == number)
        assert found.score == trial.score
    third = keep.enter_context(make(tmp_path / "c", 3, {2: 0.06}))
    all_three = keep.enter_context(merge_studies([third, both], tmp_path / "all"))
    assert [origin(all_three.about, trial.number) for trial in all_three.trials()] == [
        (3, 2), (1, 0), (1, 1), (1, 4), (2, 0), (2, 1),
    ]  # fmt: skip
    again = keep.enter_context(merge_studies([both, other], tmp_path / "again"))
    assert again.trials() == both.trials()  # what is there already comes once


def test_a_study_and_its_extended_copy_join_to_the_extended_one(tmp_path: Path, keep: contextlib.ExitStack) -> None:
    one = keep.enter_context(make(tmp_path / "a", 1, {0: 0.01, 1: 0.02, 2: 0.03}))
    longer = keep.enter_context(make(tmp_path / "b", 1, {0: 0.01, 1: 0.02, 2: 0.03, 3: 0.04}))
    both = keep.enter_context(merge_studies([one, longer], tmp_path / "both"))
    assert both.trials() == longer.trials()
    assert [origin(both.about, number) for number in range(4)] == [(1, number) for number in range(4)]


def test_the_same_number_with_another_recipe_is_another_trial(tmp_path: Path, keep: contextlib.ExitStack) -> None:
    one = keep.enter_context(make(tmp_path / "a", 1, {0: 0.01, 1: 0.02}))
    other = keep.enter_context(make(tmp_path / "b", 1, {0: 0.01, 1: 0.09}))
    both = keep.enter_context(merge_studies([one, other], tmp_path / "both"))
    assert {trial.number: trial.score for trial in both.trials()} == {0: 1.01, 1: 1.02, 3: 1.09}
    assert origin(both.about, 3) == (1, 1)


def test_what_a_trial_continues_moves_with_it(tmp_path: Path, keep: contextlib.ExitStack) -> None:
    one = keep.enter_context(make(tmp_path / "a", 1, {0: 0.01}))
    other = keep.enter_context(make(tmp_path / "b", 2, {0: 0.04}))
    other.add(dataclasses.replace(other.trials()[0], number=1, continues=0, examples=500))
    both = keep.enter_context(merge_studies([one, other], tmp_path / "both"))
    assert [trial.continues for trial in both.trials()] == [None, None, 1]


def test_the_joined_study_can_go_on(tmp_path: Path, keep: contextlib.ExitStack) -> None:
    one = keep.enter_context(make(tmp_path / "a", 1, {0: 0.01}))
    other = keep.enter_context(make(tmp_path / "b", 2, {0: 0.04}))
    with merge_studies([one, other], f"sqlite:///{tmp_path / 'both.db'}") as both:
        about = both.about
    with Store.open(f"sqlite:///{tmp_path / 'both.db'}", about=about) as both:
        assert [trial.number for trial in both.trials()] == [0, 1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": "others"}, "its data are different"),
        ({"task": "numbers"}, "its task is numbers"),
        ({"metric": "log_loss"}, "its metric is log_loss"),
        ({"space": SPACE.with_priors({RATE: LogUniform(1e-3, 1.0)})}, f"`{RATE}` has another range"),
    ],
)
def test_what_does_not_belong_together_is_refused(
    tmp_path: Path, keep: contextlib.ExitStack, change: dict[str, Any], words: str
) -> None:
    one = keep.enter_context(make(tmp_path / "a", 1, {0: 0.01}))
    other = make(tmp_path / "b", 2, {0: 0.04}, **change)
    with pytest.raises(RequestError, match="cannot be merged") as caught:
        merge_studies([one, other], tmp_path / "both")
    assert words in str(caught.value)
    assert not (tmp_path / "both").exists()
    other.close()
    before = (tmp_path / "b").read_bytes()
    with pytest.raises(RequestError, match="already contains a study"):
        merge_studies([one], tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == before
