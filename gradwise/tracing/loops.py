"""Short loops, opened: the program of a `jax.lax.scan` written out turn by turn, so that what it does can be seen.

    unrolled(equation)              the same program without the loop; None for other equations and for long loops
    turn_of("loss/[3]/tanh")        "[3]": in which turn an equation stands, from its name stack

Recurrent networks scan over time, deep ones over their layers: unseen, all that they do is one equation. Each turn is
named on the stack of names, and each line of the user's code is still known.
"""

import functools
import re
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp

MOST = 1500  # equations: written out, a longer loop would take longer to compile than all the rest
_TURN = re.compile(r"\[\d+\]")


def turn_of(scope: str) -> str:
    """The turns, the outermost loop's first; nothing outside of loops."""
    return "".join(_TURN.findall(scope))


def _size(jaxpr: Any) -> int:
    """How many equations a program has, with those of the calls and loops in it."""
    within = [equation.params.get("jaxpr", equation.params.get("call_jaxpr")) for equation in jaxpr.eqns]
    times = [equation.params.get("length", 1) for equation in jaxpr.eqns]
    opened = [getattr(one, "jaxpr", one) for one in within]
    return sum(n * _size(one) if hasattr(one, "eqns") else 1 for one, n in zip(opened, times, strict=True))


@functools.lru_cache(maxsize=64)
def _written_out(body: Any, length: int, constants: int, carried: int, reverse: bool, shapes: tuple[Any, ...]) -> Any:
    turn = jax.extend.core.jaxpr_as_fun(body)

    def loop(*given: Any) -> list[Any]:
        fixed, carry, rows = given[:constants], given[constants : constants + carried], given[constants + carried :]
        results: dict[int, list[Any]] = {}
        for number in range(length - 1, -1, -1) if reverse else range(length):
            with jax.named_scope(f"[{number}]"):
                one = [jax.lax.index_in_dim(row, number, keepdims=False) for row in rows]
                found = turn(*fixed, *carry, *one)
            carry, results[number] = tuple(found[:carried]), found[carried:]
        stacked = [jnp.stack([results[number][place] for number in range(length)]) for place in range(len(results[0]))]
        return [*carry, *stacked]

    # In 64 bits if the loop is, wherever this is called from: the same loop must stay the same program.
    with jax.enable_x64(any(str(shape.dtype).endswith("64") for shape in shapes)):
        return jax.make_jaxpr(loop)(*shapes)


def _parts(equation: Any, body: Any) -> tuple[int, int]:
    """How many constants a loop has, and how many values it carries: all others have a row for each turn."""
    inside = getattr(body, "jaxpr", body)
    whole = sum(v.aval.ndim == own.aval.ndim for v, own in zip(equation.invars, inside.invars, strict=True))
    carried = sum(v.aval.ndim == own.aval.ndim for v, own in zip(equation.outvars, inside.outvars, strict=True))
    return whole - carried, carried


def unrolled(equation: Any) -> Any | None:
    """The closed program of a scan with all its turns."""
    if equation.primitive.name != "scan" or equation.effects:
        return None
    body, length, reverse = (equation.params[name] for name in ("jaxpr", "length", "reverse"))
    if not 0 < length * _size(getattr(body, "jaxpr", body)) <= MOST:
        return None
    shapes = tuple(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars)
    return _written_out(body, length, *_parts(equation, body), reverse, shapes)
