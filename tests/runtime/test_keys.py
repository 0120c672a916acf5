"""Random streams by name."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError


def _words(key: jax.Array) -> tuple[int, ...]:
    return tuple(np.ravel(jax.random.key_data(key)).tolist())


def test_named_streams_differ_and_repeat() -> None:
    key = keys.from_seed(3)
    names = ["model", "split", "training", "trial", "fold 0", "fold 1", ""]
    assert len({_words(keys.named(key, name)) for name in names} | {_words(key)}) == len(names) + 1
    assert _words(keys.named(key, "model")) == _words(keys.named(keys.from_seed(3), "model"))
    assert _words(keys.named(key, "model")) != _words(keys.named(keys.from_seed(4), "model"))


def test_a_trial_depends_on_the_seed_and_its_number_alone() -> None:
    key = keys.from_seed(0)
    forwards = [_words(keys.of_trial(key, number)) for number in range(50)]
    backwards = [_words(keys.of_trial(key, number)) for number in reversed(range(50))]
    assert forwards == backwards[::-1]
    assert len(set(forwards)) == 50
    assert not set(forwards) & {_words(keys.of_trial(keys.from_seed(1), number)) for number in range(50)}


@given(st.integers(0, 2**32 - 1))
def test_every_seed_in_range_makes_a_key_that_remembers_it(seed: int) -> None:
    assert keys.seed_of(keys.from_seed(seed)) == seed


@pytest.mark.parametrize("seed", [-1, 2**32, -(2**40)])
def test_a_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(RequestError, match=rf"`seed` must lie in \[0, 2\*\*32\); got {seed}"):
        keys.from_seed(seed)


def test_a_host_generator_follows_the_key() -> None:
    first, again, other = (keys.generator(keys.from_seed(seed)).random(4) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("numbers", [[], [7], [3, 0, 2**31, 5, 4_000_000_000]])
def test_generators_of_several_numbers_are_those_of_each(numbers: list[int]) -> None:
    key = keys.from_seed(5)
    alone = [keys.generator(jax.random.fold_in(key, np.uint32(number))) for number in numbers]
    together = keys.generators(key, numbers)
    assert [one.random(3).tolist() for one in together] == [one.random(3).tolist() for one in alone]
