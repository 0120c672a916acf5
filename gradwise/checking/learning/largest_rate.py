"""The largest learning rate that does not diverge (row B2), found by training at many rates at once.

    found = largest_rate(recipe, train, valid, outputs=10, classes=10, key=key)
    recipe = found.applied(recipe)

The chapter starts with a large rate, divides it by 3 until training does not diverge, then bisects. Here all rates of
a ladder are trained at once, with the same initial weights and batches: one call tries a ladder of factor 3, a second
one finer ladders between the last good and the first bad rate and around the best. Both calls are one program.

A run diverges if its training loss is not finite, or if its mean over a quarter of the updates is more
than `FACTOR` times the loss of the initial weights. Finiteness alone is not enough: saturated units stay finite at any
rate, and rectifiers killed by an explosion look calm afterwards.

According to the chapter the best rate lies within a factor 2 of the largest. On four small sets over 200 updates
this holds for rectifiers (0.9 to 2.6 times, mostly below 1.7); tanh units still train at up to 6 times their best rate,
12 if the loss hardly depends on it. Since the losses are known, `recommended` is the rate with the lowest loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from ...curvature.objective import Examples
from ...runtime.errors import RequestError, WorkError
from ...specs.knobs import Allowed, Declaration
from ...specs.paths import check_path, get, knobs, replace
from ...specs.recipe import Recipe
from ...training.interval import advance
from ...training.state import Problem, State, init
from ...training.update import gather_batch, step

FACTOR = 1.2  # room for the noise of batches and dropout at rates so small that nothing moves
STEP = 3.0
_ABOVE = 2  # rungs above the prior's end: the largest rate may lie beyond where the best one is believed to
_WINDOWS = 4  # the loss is averaged over quarters of the updates
_RANGE = 1e6  # where a prior has no positive low end


@dataclass(frozen=True)
class Tried:
    """Rates in increasing order, and the final loss at each: infinite if training diverged."""

    rates: np.ndarray
    losses: np.ndarray
    diverged: np.ndarray
    start: float  # the training loss of the initial weights

    def joined(self, other: "Tried") -> "Tried":
        rates = np.concatenate([self.rates, other.rates])
        order = np.argsort(rates)
        losses = np.concatenate([self.losses, other.losses])[order]
        return Tried(rates[order], losses, np.concatenate([self.diverged, other.diverged])[order], self.start)

    def up_to(self, rate: float) -> "Tried":
        kept = self.rates <= rate
        return Tried(self.rates[kept], self.losses[kept], self.diverged[kept], self.start)

    def last_good(self) -> int:
        """The index of the first rate that trains while the next one diverges; -1 if none trains.

        Seen from below: a lucky run above the border is not a reason to start that high.
        """
        good = ~self.diverged
        if not good.any():
            return -1
        borders = np.flatnonzero(good[:-1] & ~good[1:])
        return int(borders[0]) if len(borders) else len(good) - 1

    def best(self) -> int:
        """The index of the lowest loss."""
        return int(np.argmin(np.where(self.diverged, np.inf, self.losses)))


@dataclass(frozen=True)
class RateFound:
    """The largest rate that trains, the one that trains best, all that was tried, and in how many calls.

    `paths` are the learning rates of the recipe with their ratios to the first, to which the numbers refer.
    """

    largest: float
    recommended: float
    tried: Tried
    calls: int
    paths: tuple[tuple[str, float], ...]

    def applied(self, recipe: Recipe) -> Recipe:
        """The recipe with the recommended rate; other groups' rates keep their ratio to it."""
        return _with_rate(recipe, self.paths, self.recommended)


def _rate_paths(recipe: Recipe, path: str | None) -> tuple[tuple[str, float], ...]:
    """The learning rates of a recipe, each with its ratio to the first."""
    if path is None:
        found = [name for name, _, _ in knobs(recipe) if name.rpartition(".")[2] == "learning_rate"]
        if not found:
            raise RequestError("the recipe has no knob called `learning_rate`; name the one to use: path=...")
    else:
        check_path(recipe, path)
        found = [path]
    values = [float(get(recipe, name)) for name in found]
    return tuple((name, value / values[0]) for name, value in zip(found, values, strict=True))


def _with_rate(recipe: Recipe, paths: Sequence[tuple[str, float]], rate: Any) -> Recipe:
    for path, ratio in paths:
        recipe = replace(recipe, path, rate * ratio)
    return recipe


def _first_loss(problem: Problem, state: State, updates: int) -> Float[Array, ""]:
    """The training loss of the initial weights on the batches of the first updates, with dropout as in training."""
    numbers = jnp.arange(updates, dtype=jnp.int32)
    rows, present, _ = problem.recipe.batches.indices(numbers, len(problem.train), key=problem.key)

    def body(inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        batch = gather_batch(problem, *inputs)
        _, terms = step(problem, state, batch)  # only the loss is used: the compiler leaves the update out
        losses = terms.get("loss", jnp.broadcast_to(terms["total"], batch.present.shape))
        return jnp.sum(losses * batch.weights), jnp.sum(batch.weights)

    losses, weights = jax.lax.map(body, (rows, present))
    return jnp.sum(losses) / jnp.sum(weights)


@eqx.filter_jit
def _train_all(
    recipe: Recipe,
    paths: tuple[tuple[str, float], ...],
    rates: Float[Array, " N"],
    examples: tuple[Examples, Examples],
    sizes: tuple[int, int],
    updates: int,
    key: Key[Array, ""],
) -> tuple[Float[Array, " N"], Float[Array, "N windows"]]:
    """The loss before training and the mean training loss of each window, for each rate."""
    window = -(-updates // _WINDOWS)

    def one(rate: Float[Array, ""]) -> tuple[Array, Array]:
        chosen = _with_rate(recipe, paths, rate)
        problem, state = init(chosen, *examples, outputs=sizes[0], classes=sizes[1], key=key)

        def body(state: State, _: None) -> tuple[State, Array]:
            state, told = advance(problem, state, window)
            return state, told["train_loss"]

        return _first_loss(problem, state, window), jax.lax.scan(body, state, None, length=_WINDOWS)[1]

    return jax.vmap(one)(rates)


def try_rates(
    recipe: Recipe,
    rates: Any,
    train: Examples,
    valid: Examples,
    *,
    outputs: int,
    classes: int = 0,
    updates: int = 200,
    key: Key[Array, ""],
    path: str | None = None,
) -> Tried:
    """Trains the recipe at each of these rates, all at once; `updates` is rounded up to a multiple of 4."""
    rates = np.sort(np.asarray(rates, np.float32))
    paths = _rate_paths(recipe, path)
    start, windows = _train_all(recipe, paths, jnp.asarray(rates), (train, valid), (outputs, classes), updates, key)
    first = float(start[0])
    losses = np.asarray(windows, np.float64)
    losses = np.where(np.isfinite(losses).all(axis=1, keepdims=True), losses, np.inf)
    limit = first + (FACTOR - 1.0) * abs(first) if np.isfinite(first) else -np.inf  # a criterion may lie below 0
    diverged = losses.max(axis=1) > limit
    return Tried(rates.astype(np.float64), losses[:, -1], diverged, first)


def _ladder(declaration: Declaration) -> np.ndarray:
    """Rates with a factor 3 between them, over the prior's range and a little above it."""
    prior = declaration.prior
    low, high = (float(prior.quantile(0.0)), float(prior.quantile(1.0))) if prior is not None else (0.0, 1.0)
    low = low if low > 0 else high / _RANGE
    top = high * STEP**_ABOVE
    if isinstance(declaration.allowed, Allowed):
        top = min(top, 0.999 * declaration.allowed.ends()[1])
    count = int(np.ceil(np.log(top / low) / np.log(STEP) - 1e-9)) + 1
    return top / STEP ** np.arange(count)[::-1]


def _between(low: float, high: float, count: int) -> np.ndarray:
    """Rates strictly between these two, equally far apart on the logarithmic scale."""
    return low * (high / low) ** (np.arange(1, count + 1) / (count + 1))


def _second_ladder(tried: Tried, count: int) -> np.ndarray:
    """Half of the rates between the last good one and the next, the others around the best."""
    last = tried.last_good()
    rates = tried.rates
    half = count // 2 if last + 1 < len(rates) else 0  # nothing diverged: nothing to bisect
    best = tried.up_to(rates[last]).best()
    border = _between(rates[last], rates[last + 1], half) if half else np.empty(0)
    around = _between(rates[max(best - 1, 0)], rates[min(best + 1, len(rates) - 1)], count - half)
    return np.concatenate([border, around])


def largest_rate(
    recipe: Recipe,
    train: Examples,
    valid: Examples,
    *,
    outputs: int,
    classes: int = 0,
    updates: int = 200,
    key: Key[Array, ""],
    path: str | None = None,
) -> RateFound:
    """The largest learning rate that does not diverge within `updates`, to about a tenth.

    `path` is that of the rate; without it every knob called `learning_rate` is used: the first sets the scale and the
    others keep their ratio to it. Two calls of one program suffice; if the whole ladder trains or the whole
    ladder diverges, a third tries rates above or below it.
    """
    if updates < _WINDOWS:
        raise RequestError(f"`updates` must be at least {_WINDOWS}; got {updates}.")
    paths = _rate_paths(recipe, path)
    declaration = next(declared for name, declared, _ in knobs(recipe) if name == paths[0][0])
    ladder = _ladder(declaration)

    def attempt(rates: np.ndarray) -> Tried:
        return try_rates(
            recipe, rates, train, valid, outputs=outputs, classes=classes, updates=updates, key=key, path=path
        )

    tried, calls = attempt(ladder), 1
    span = STEP ** len(ladder)
    within = isinstance(declaration.allowed, Allowed) and declaration.allowed.ends()[1] < ladder[-1] * span
    if tried.diverged.all() or not (tried.diverged.any() or within):
        tried, calls = tried.joined(attempt(ladder / span if tried.diverged.all() else ladder * span)), calls + 1
    if tried.last_good() < 0:
        raise WorkError(
            f"training diverges at every learning rate from {tried.rates[0]:.1g} to {tried.rates[-1]:.1g}. "
            "Scale the inputs and the targets, or make the initial weights smaller."
        )
    tried, calls = tried.joined(attempt(_second_ladder(tried, len(ladder)))), calls + 1
    below = tried.up_to(tried.rates[tried.last_good()])
    return RateFound(float(below.rates[-1]), float(below.rates[below.best()]), tried, calls, paths)
