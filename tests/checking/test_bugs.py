"""Every planted bug is found, at its place, and nothing else is called an error."""

import pytest

from tests.checking.bugs import BUGS, Bug
from tests.checking.sound import checked


def test_the_list_is_as_long_as_promised_and_its_names_are_its_own() -> None:
    assert len(BUGS) >= 36
    assert len({bug.name for bug in BUGS}) == len(BUGS)


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_where_it_is(bug: Bug) -> None:
    said = checked(bug.make)
    wanted = f"{bug.name}: one of {sorted(bug.codes)} that names /{bug.where}/\n{said}"
    assert bug.found_in(said.findings) is not None, f"missed {wanted}"
    assert not bug.astray(said.findings), f"other errors than {wanted}"
    assert not [ran for ran in said.ran if ran.outcome == "not run"]
