"""The false-alarm list: nothing that is right is called an error, however unusual it is."""

import pytest

from tests.checking.sound import SOUND, Sound, checked


def test_the_list_is_as_long_as_promised_and_its_names_are_its_own() -> None:
    assert len(SOUND) >= 20
    assert len({problem.name for problem in SOUND}) == len(SOUND)


@pytest.mark.slow
@pytest.mark.parametrize("problem", SOUND, ids=lambda problem: problem.name)
def test_a_sound_problem_raises_no_error(problem: Sound) -> None:
    said = checked(problem.make)
    assert not said.errors, f"{problem.name} ({problem.why}) has nothing wrong\n{said}"
    assert not [ran for ran in said.ran if ran.outcome == "not run"]
