"""Knobs and switches: checked when made, read at run time, static where they are off."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.runtime.errors import RequestError
from gradwise.specs.knobs import Allowed, Spec, changed_knobs, declarations, is_off, knob, switch
from gradwise.specs.paths import replace
from gradwise.specs.priors import LogUniform, Uniform


class Inner(Spec):
    amount: float = knob(0.5, allowed="(0, 1]", prior=Uniform(0.1, 1.0), row="C1")


class Toy(Spec):
    rate: float = knob(0.1, allowed="(0, inf)", prior=LogUniform(1e-3, 1.0), row="C1")
    decay: float = knob(0.0, allowed="[0, 1)", prior=Uniform(0.0, 0.9), row="D2", off=0.0)
    size: int = switch(32, allowed="[1, inf)", row="C5")
    mode: str = switch("plain", allowed=("plain", "fancy"), row="C9")
    where: str = switch("*.weight", row="D2")
    inner: Inner = Inner()
    several: tuple[Inner, ...] = ()


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("(0, 1)", [0.5, 1e-300], [0.0, 1.0, -1.0, 2.0]),
        ("[0, 1]", [0.0, 1.0, 0.3], [-1e-9, 1.0000001]),
        ("(0, inf)", [1e300, 1], [0, float("inf"), float("nan")]),
        ("[1, inf)", [1], [0.999, float("nan")]),
        ("(-inf, 0]", [0.0, -1e300], [1e-9]),
    ],
)
def test_an_interval_reads_as_in_mathematics(text: str, inside: list[float], outside: list[float]) -> None:
    assert [value for value in inside if value not in Allowed(text)] == []
    assert [value for value in outside if value in Allowed(text)] == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rate": 0.0}, ["`Toy.rate`", "(0, inf)", "0.0", "Default: 0.1"]),
        ({"rate": -3}, ["`Toy.rate`", "(0, inf)", "-3", "Default: 0.1"]),
        ({"rate": float("nan")}, ["`Toy.rate`", "nan"]),
        ({"rate": float("inf")}, ["`Toy.rate`", "inf"]),
        ({"rate": "0.1"}, ["`Toy.rate`", "a number in (0, inf)", "'0.1'"]),
        ({"rate": None}, ["`Toy.rate`", "None"]),
        ({"rate": True}, ["`Toy.rate`", "True"]),
        ({"rate": 1j}, ["`Toy.rate`", "1j"]),
        ({"rate": np.complex128(1j)}, ["`Toy.rate`", "1j"]),
        ({"rate": (0.1, 0.2)}, ["`Toy.rate`", "(0.1, 0.2)"]),
        ({"decay": 1.2}, ["`Toy.decay`", "[0, 1)", "1.2", "Did you mean 0.12?"]),
        ({"size": 0}, ["`Toy.size`", "[1, inf)", "0", "Default: 32"]),
        ({"size": 2.5}, ["`Toy.size`", "whole number", "2.5"]),
        ({"size": (1, 2)}, ["`Toy.size`", "(1, 2)"]),
        ({"mode": "fanci"}, ["`Toy.mode`", "'plain', 'fancy'", "'fanci'"]),
        ({"where": 5}, ["`Toy.where`", "text", "5"]),
        ({"several": Inner()}, ["`Toy.several`", "a tuple of Inner", "(Inner(...),)"]),
        ({"several": (Inner(), 3)}, ["`Toy.several`", "Inner", "3"]),
        ({"inner": 0.5}, ["`Toy.inner`", "Inner", "0.5"]),
        ({"inner": Inner}, ["`Toy.inner`", "Inner"]),
    ],
)
def test_a_wrong_value_is_refused_when_made_and_named(fields: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        Toy(**fields)
    message = str(caught.value)
    assert "\n" not in message
    assert [word for word in words if word not in message] == []


def test_right_values_of_every_numeric_kind_are_taken() -> None:
    for value in (1, 1.0, np.float32(1), np.int64(1), np.float64(1)):
        assert float(Toy(rate=value).rate) == 1.0
    assert Toy(size=np.int64(8)).size == 8


def test_a_subclass_checks_what_it_adds_and_what_it_inherits() -> None:
    class More(Toy):
        extra: float = knob(1.0, allowed="[1, 2]", prior=Uniform(1.0, 2.0), row="C1")

    assert More(extra=2.0).size == 32
    for fields in ({"extra": 3.0}, {"rate": -1.0}):
        with pytest.raises(RequestError, match="More"):
            More(**fields)


def test_a_population_is_checked_element_by_element() -> None:
    assert Toy(rate=np.array([0.1, 0.2])).rate.shape == (2,)
    assert Toy(rate=jnp.array([0.1, 0.2])).rate.shape == (2,)
    for bad in (np.array([0.1, -0.2]), jnp.array([[0.1], [-0.2]]), np.array([0.1, np.nan])):
        with pytest.raises(RequestError, match=r"Toy\.rate"):
            Toy(rate=bad)


def test_traced_values_are_not_checked() -> None:
    # -1 is refused outside; inside a trace there is no value yet to be refused.
    assert float(jax.jit(lambda rate: Toy(rate=rate).rate * 2)(-1.0)) == -2.0
    shape = jax.eval_shape(lambda rate: jnp.asarray(Toy(rate=rate).rate), jax.ShapeDtypeStruct((), jnp.float32))
    assert shape.shape == ()
    assert eqx.filter_vmap(lambda toy: toy.rate + 1.0)(
        Toy(rate=np.array([0.1, 0.2]), inner=Inner(np.ones(2)))
    ).shape == (2,)


def _traces(values: list[Toy]) -> tuple[int, list[float]]:
    count = 0

    @eqx.filter_jit
    def use(toy: Toy) -> jax.Array:
        nonlocal count
        count += 1
        return jnp.asarray(toy.rate) + (0.0 if is_off(toy.decay) else toy.decay)

    results = [float(use(toy)) for toy in values]
    return count, results


def test_another_value_of_a_knob_compiles_nothing() -> None:
    count, results = _traces([Toy(rate=rate) for rate in (0.1, 0.2, 3, np.float32(0.5))])
    assert count == 1
    np.testing.assert_allclose(results, [0.1, 0.2, 3.0, 0.5], rtol=1e-6)


def test_off_is_static_and_costs_one_compilation_of_its_own() -> None:
    on, off = [Toy(decay=decay) for decay in (0.1, 0.2, 0.3)], [Toy(rate=rate, decay=0) for rate in (0.1, 0.2)]
    assert _traces(on)[0] == 1
    assert _traces(off)[0] == 1
    assert _traces(on + off + on)[0] == 2
    assert is_off(Toy().decay)
    assert not is_off(Toy(decay=0.1).decay)
    assert not is_off(Toy().rate)


def test_another_value_of_a_switch_is_another_program() -> None:
    assert _traces([Toy(size=1), Toy(size=2), Toy(size=1)])[0] == 2


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_a_knob_keeps_its_number_exactly(value: float) -> None:
    assert float(Toy(rate=value).rate) == value


def test_declarations_name_knobs_and_switches_but_not_parts() -> None:
    assert [name for name, _ in declarations(Toy)] == ["rate", "decay", "size", "mode", "where"]
    declared = dict(declarations(Toy()))
    assert (declared["rate"].row, declared["rate"].static, declared["size"].static) == ("C1", False, True)


def test_changed_tells_what_differs_from_the_defaults() -> None:
    assert changed_knobs(Sgd()) == {}
    assert changed_knobs(replace(Sgd(), "learning_rate", 0.5)) == {"learning_rate": 0.5}
