"""Loss and gradient of the whole batch in the user's precision: are they finite and deterministic?

    seen = evaluate_twice(subject, key)
    seen.loss, seen.again, seen.broken, seen.broken_at

Random numbers drawn while tracing (by NumPy) are frozen into the compiled program, so the loss is traced twice; if the
two programs differ, both are run.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...runtime.compilation import compile_quickly
from ...tracing.program import Program, Site, bind, is_random_key, is_same, trace
from ..subject import Subject
from .derivative_sites import as_arrays

_BIG = 1_000_000  # parameters for which full compilation pays off
_MOST = 400  # sites searched for the first NaN or infinite value


@dataclass(frozen=True)
class LossEvaluation:
    """A loss, evaluated twice, the parameters whose gradient is not finite, and where that begins."""

    loss: float
    again: float
    broken: tuple[str, ...] = ()
    broken_at: str = ""
    bad_batch: bool = False  # the batch itself contains NaN or infinite values
    flat: bool = False  # every gradient is exactly 0, though the loss is not


def describe_site(site: Site) -> str:
    """`layers.0, log, model.py:12 in loss`: layer, primitive and line of a site."""
    return ", ".join(filter(None, (site.layer, site.title, site.line)))


def _first_broken(program: Program, arguments: Sequence[Any], loss: float) -> str:
    """The first non-finite value of the forward pass, or else of the backward pass."""
    floats = [site for site in program.sites if site.is_float and "parameters" in site.depends][:_MOST]

    def value_of(nudges: dict[int, Array]) -> tuple[Array, dict[int, Array]]:
        kept: dict[int, Array] = {}

        def visit(number: int, equation: Any, given: list[Any]) -> list[Any]:
            results = bind(equation, given)
            if number in nudges:
                results = [results[0] + nudges[number], *results[1:]]
                kept[number] = jnp.stack([jnp.any(jnp.isnan(results[0])), jnp.any(jnp.isinf(results[0]))])
            return results

        return program.evaluate(arguments, visit)[0], kept

    def summary(nudges: dict[int, Array]) -> tuple[dict[int, Array], dict[int, Array]]:
        gradient, kept = jax.grad(value_of, has_aux=True)(nudges)
        return {n: jnp.all(jnp.isfinite(leaf)) for n, leaf in gradient.items()}, kept

    fine, kept = jax.device_get(compile_quickly(summary)(program.zeros(site.number for site in floats)))
    if not math.isfinite(loss):  # an infinity may be intended (a mask), so NaN comes first
        first = [site for kind in (0, 1) for site in floats if kept[site.number][kind]]
        return describe_site(first[0]) if first else ""
    bad = [site for site in floats if not fine[site.number]]
    if not bad:
        return ""
    readers = [site for site in program.sites if bad[-1].number in site.reads and site.is_float]
    return describe_site(readers[0] if readers else bad[-1])


def evaluate_twice(subject: Subject, key: Any) -> LossEvaluation:
    """In the precision that the user's own arrays have."""
    # A new function each time: JAX would cache the first trace.
    loss_of = [lambda *arguments: subject.value(*arguments), lambda *arguments: subject.value(*arguments)]
    program, second = (trace(one, subject.parameters, subject.batch, key) for one in loss_of)
    arguments = as_arrays((subject.parameters, subject.batch, key))
    count = len(jax.tree.leaves(subject.parameters))

    def both(moved: list[Any], rest: list[Any]) -> tuple[Array, list[Array]]:
        value, gradient = jax.value_and_grad(lambda leaves: program.evaluate([*leaves, *rest])[0])(moved)
        return value, [jnp.stack([jnp.all(jnp.isfinite(leaf)), jnp.all(leaf == 0)]) for leaf in gradient]

    run = compile_quickly(both) if subject.size < _BIG else jax.jit(both)
    value, fine = jax.device_get(run(arguments[:count], arguments[count:]))
    loss, again = float(value), float(run(arguments[:count], arguments[count:])[0])
    if not is_same(program, second):
        again = float(compile_quickly(lambda leaves: second.evaluate(leaves)[0])(arguments))
    broken = tuple(name for name, ok in zip(subject.names, fine, strict=True) if not ok[0])
    flat = loss != 0 and all(bool(zero) for _, zero in fine)
    at = _first_broken(program, arguments, loss) if broken or not math.isfinite(loss) else ""
    batch = [np.asarray(leaf) for leaf in jax.tree.leaves(subject.batch) if not is_random_key(leaf)]
    bad = any(leaf.dtype.kind == "f" and not np.all(np.isfinite(leaf)) for leaf in batch)
    return LossEvaluation(loss, again, broken, at, bad, flat)
