"""A subject with one thing altered: other parameters, other targets, fewer rows, no noise, more bits.

    few = take(subject.batch, prime_rows(subject))           a number of rows that no other axis has
    given = attempt(question, subject.parameters, few)       compiled and run once; None if it cannot be traced
    in_evaluation_mode(subject, parameters)                  the parameters of the same model without dropout

Checks that change something and observe what else changes are built from these. None of them modifies the subject.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key, PyTree

from ..runtime import keys
from ..runtime.compilation import options_for
from .batch_access import take, targets_of
from .subject import Subject, as_judged, in_64_bits, is_nnx

_PRIMES = (7, 5, 11, 13, 3)
_STILL = 0.1  # how far parameters that are all 0 are moved


def points(parameters: PyTree, sizes: Sequence[float], *, key: Key[Array, ""]) -> PyTree:
    """The parameters moved at random, once for each size (in units of their root mean square), stacked.

    Drawn on the host: compiling a generator for every leaf would take longer than the checks.
    """
    generator = keys.generator(key)

    def moved(leaf: Any) -> np.ndarray:
        value = np.asarray(leaf)
        spread = float(np.sqrt(np.mean(np.square(value, dtype=float)))) if value.size else 0.0
        noise = [generator.standard_normal(value.shape, np.float32) * size if size else 0.0 for size in sizes]
        return np.stack([(value + (spread or _STILL) * one).astype(value.dtype) for one in noise])

    return jax.tree.map(moved, parameters)


def prime_rows(subject: Subject, among: np.ndarray | None = None) -> np.ndarray:
    """A few rows with targets as varied as possible, a prime number of them that no other axis has.

    An axis of this length is then the batch axis, anywhere in the program.
    """
    among = np.arange(subject.count) if among is None or len(among) < 2 else among
    taken = {size for leaf in jax.tree.leaves(subject.parameters) for size in np.shape(leaf)}
    taken |= {size for leaf in jax.tree.leaves(subject.batch) for size in np.shape(leaf)[1:]}
    count = next((size for size in _PRIMES if size <= len(among) and size not in taken), min(5, len(among)))
    mixed = np.random.default_rng(0).permutation(among)
    targets = targets_of(subject.batch)
    if targets is None or np.ndim(targets) == 0 or np.shape(targets)[0] != subject.count:
        return np.sort(mixed[:count])
    _, first = np.unique(np.asarray(targets)[mixed].reshape(len(mixed), -1), axis=0, return_index=True)
    first = np.sort(first)
    return np.sort(mixed[np.concatenate([first, np.setdiff1d(np.arange(len(mixed)), first)])[:count]])


def without_noise(model: Any) -> PyTree:
    """The overlay on a model's parameters that turns its noise off: True wherever a layer has `inference`."""
    return eqx.filter(as_judged(model), lambda leaf: leaf is True)


def in_evaluation_mode(subject: Subject, parameters: PyTree) -> PyTree:
    """These parameters together with the switches of the model's layers, set to evaluation mode.

    A subject overlays its parameters on the rest of the model, so the switches take precedence. Models other than
    Equinox modules have no switches: see `has_switches`.
    """
    return eqx.combine(parameters, without_noise(subject.model_of(parameters))) if has_switches(subject) else parameters


def has_switches(subject: Subject) -> bool:
    """Whether the model's layers have `inference`, and the subject can set it through the parameters."""
    model = subject.model_of(subject.parameters)
    forms: list[Any] = [
        jax.tree.structure(tree, is_leaf=lambda leaf: leaf is None) for tree in (model, subject.parameters)
    ]
    return forms[0] == forms[1] and any(leaf is True for leaf in jax.tree.leaves(without_noise(model)))


def dropouts(model: Any) -> dict[str, float]:
    """The layers that drop units in training, by path, with their rates."""

    def switched(node: Any) -> bool:
        return hasattr(node, "inference") or hasattr(node, "deterministic")

    found = {}
    if is_nnx(model):
        from flax import nnx  # installed, since the model uses it

        nodes = [(".".join(map(str, path)), node) for path, node in nnx.iter_graph(model) if switched(node)]
        return {name: float(node.rate) for name, node in nodes if getattr(node, "rate", 0) > 0}
    for path, node in jax.tree_util.tree_leaves_with_path(model, is_leaf=switched):
        rate = getattr(node, "p", getattr(node, "rate", None)) if switched(node) else None
        if isinstance(rate, (int, float)) and rate > 0:
            found[jax.tree_util.keystr(path).lstrip(".").replace("[", ".").replace("]", "")] = float(rate)
    return found


def bits_of(subject: Subject) -> int:
    """64 if the loss can be computed in 64 bits, else 32: some programs fix their types."""
    try:
        with jax.enable_x64(True):
            given = in_64_bits((subject.parameters, subject.batch))
            jax.eval_shape(subject.value, *given, jr.key(0))
    except Exception:  # any error of the user's program in 64 bits: it was computed in 32 before
        return 32
    return 64


def attempt(question: Callable[..., Any], *given: Any, bits: int = 64) -> Any:
    """`question(*given)`, compiled, as NumPy; None if the user's program cannot be traced in this form.

    For instance, a loss may require a fixed number of rows, or a model a key. The check is then skipped.
    """
    with jax.enable_x64(bits == 64):
        wide = in_64_bits(given) if bits == 64 else given
        try:
            lowered = jax.jit(question).lower(*wide)
        except Exception:  # any kind of error may come out of a user's program
            return None
        size = sum(int(np.size(leaf)) for leaf in jax.tree.leaves(wide))
        compiled = lowered.compile(compiler_options=options_for(size))
        return jax.tree.map(np.asarray, compiled(*wide))


def few_rows(subject: Subject, rows: np.ndarray) -> Subject:
    """The subject on some rows of its batch."""
    return dataclasses.replace(subject, batch=take(subject.batch, rows))


def magnitude_of(values: np.ndarray) -> float:
    """The size of numbers, to which changes are relative."""
    finite = np.abs(np.asarray(values, float))[np.isfinite(values)]
    return float(finite.max(initial=0.0))


def change_of(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """How much each number changed; infinite if it became or was NaN."""
    before, after = np.asarray(before, float), np.asarray(after, float)
    same = (before == after) | (np.isnan(before) & np.isnan(after))
    with np.errstate(invalid="ignore"):
        moved = np.where(same, 0.0, np.abs(after - before))
    return np.where(np.isnan(moved), np.inf, moved)


def tolerance(bits: int) -> float:
    """The relative change that rounding may cause."""
    return 1e-8 if bits == 64 else 1e-3
