"""A program read for derivatives: kinds, dependence, the walk, and running it another way. Nothing is compiled."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise.checking.gradient.derivative_sites import broken_sites, name_inside, reaching, read_sites
from gradwise.tracing.program import bind, trace

HERE = Path(__file__).name


@jax.custom_vjp
def doubled(x):
    return jnp.sin(x)


doubled.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (2 * g * jnp.cos(x),))


def loss(parameters, batch, key):
    """Two ways from the hidden values: one through `doubled`, one beside it; a step; something that is not used."""
    hidden = batch @ parameters["first"]
    bent = doubled(hidden) + hidden
    jnp.cos(bent)
    rounded = jnp.round(batch @ parameters["stepped"])
    return jnp.mean(jax.nn.log_softmax(jax.nn.relu(bent) @ parameters["second"])[:, 0]) + jnp.sum(rounded)


@pytest.fixture(scope="module")
def known():
    parameters = {name: jnp.eye(3) for name in ("first", "second", "stepped")}
    batch = np.linspace(-1, 1, 15).reshape(5, 3).astype(np.float32)
    program = trace(loss, parameters, batch, jax.random.key(0))
    places, result = read_sites(program, parameters)
    return program, places, reaching(places, result), jax.tree.leaves((parameters, batch, jax.random.key(0)))


def test_kinds_tell_the_users_own_from_a_librarys(known):
    _, places, used, _ = known
    assert {p.site.title: p.users for p in places if p.kind == "own"} == {"doubled": True, "relu": False}
    assert [p.users for p in places if p.kind == "stop"] == [False]  # within log_softmax
    at = next(p for p in places if p.site.title == "doubled")
    assert at.above == {"first"}
    assert HERE in at.site.line
    assert not any(p.site.number in used for p in places if p.site.primitive == "cos")
    assert places[-1].above == {"first", "second", "stepped"}
    assert places[-1].smoothly == {"first", "second"}  # the third comes by a step


def test_the_walk_stops_at_the_reader_that_is_right_above_and_wrong_below(known):
    _, places, used, _ = known
    number = {p.site.title: p.site.number for p in reversed(places)}
    hidden = number["dot_general"]
    status = {p.site.number: p.site.number == hidden for p in places if p.site.is_float and p.site.number in used}
    culprit = {number["doubled"]}
    assert broken_sites(places, status, ["first"]) & used == culprit
    blind = {n: bad for n, bad in status.items() if n != hidden}  # seen through, to the parameter
    assert broken_sites(places, blind, ["first"]) & used == culprit
    above = status | {number["doubled"]: True}  # then it is not this one: its result is wrong already
    assert not broken_sites(places, above, ["first"]) & culprit
    assert not broken_sites(places, dict.fromkeys(status, False), [])


def test_a_program_runs_as_written_or_otherwise(known):
    program, places, _, arguments = known
    parameters = dict(zip(("first", "second", "stepped"), arguments, strict=False))
    plain = program.evaluate(arguments)[0]
    np.testing.assert_allclose(plain, loss(parameters, arguments[3], None), rtol=1e-6)
    skip = {p.site.number for p in places if p.site.primitive == "round"}
    other = program.evaluate(arguments, lambda n, e, given: [given[0] * 0] if n in skip else bind(e, given))[0]
    np.testing.assert_allclose(plain - other, np.sum(np.round(arguments[3])), atol=1e-5)


def test_what_stands_in_a_loop_that_is_too_long_to_open_is_named_with_it():
    def looped(parameters, batch, key):
        step = lambda carry, x: (doubled(carry * parameters + jax.lax.stop_gradient(x)), None)  # noqa: E731
        return jnp.sum(jax.lax.scan(step, jnp.zeros(3), batch)[0])

    short, _ = read_sites(trace(looped, jnp.ones(3), jnp.ones((2, 3)), jax.random.key(0)), jnp.ones(3))
    assert [(place.site.title, place.site.turn) for place in short if place.kind == "own"] == [
        ("doubled", "[0]"),
        ("doubled", "[1]"),
    ]
    places, _ = read_sites(trace(looped, jnp.ones(3), jnp.ones((1000, 3)), jax.random.key(0)), jnp.ones(3))
    (scan,) = [place for place in places if place.site.primitive == "scan"]
    assert (scan.kind, scan.users) == ("own", True)
    assert name_inside(scan.equation, "own") == "doubled in scan"
    assert name_inside(scan.equation, "stop") == "stop_gradient in scan"
