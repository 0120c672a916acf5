"""Programs that are run once are compiled with little optimisation, and give the same numbers."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.runtime.compiling import QUICK, SMALL, known_options, options_for, quickly


def test_small_programs_are_compiled_quickly_and_large_ones_well() -> None:
    expected = QUICK if jax.default_backend() == "cpu" else None
    assert options_for(SMALL - 1) == expected
    assert options_for(SMALL) is None


def test_an_option_that_this_version_does_not_have_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(QUICK, "xla_cpu_of_another_age", True)
    known_options.cache_clear()
    try:
        assert known_options() == {name: value for name, value in QUICK.items() if name != "xla_cpu_of_another_age"}
        assert quickly(lambda x: x + 1)(1) == 2
    finally:
        known_options.cache_clear()


def test_the_numbers_are_the_same() -> None:
    x = jr.normal(jr.key(0), (30, 20))

    def function(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda carry, row: (jnp.tanh(carry + row), carry @ row), x[0], x)[1]

    np.testing.assert_allclose(quickly(function)(x), jax.jit(function)(x), rtol=1e-5, atol=1e-5)
