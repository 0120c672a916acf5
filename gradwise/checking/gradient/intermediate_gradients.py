"""The gradient at intermediate values: where, between the parameters and the loss, a derivative goes wrong.

The chapter's second step, once a parameter's gradient disagrees with its differences: verify dL/da in the same way at
the values a that depend on it. A value is perturbed along a random direction; reverse mode and central differences must
agree on the slope. All perturbations, directions and steps are one compiled program.

    sites, own = measure_sites(program, places, arguments, numbers, alone, generator)
    sites[0].wrong, own[0].slope.ratio

A function with a custom derivative is also tested in isolation, with a random cotangent on its result, to catch errors
that this batch hides.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...runtime.compilation import compile_quickly
from ...tracing.program import Program, bind
from .derivative_sites import Place

EPSILONS = (1e-4, 1e-6)
DIRECTIONS = 2
TOLERANCE = 1e-3
_LEAST = 1e-300
_OF_SCALE = 1e-3  # an entry much smaller than the others is moved by this share of their size


@dataclass(frozen=True)
class Slope:
    """A derivative along random directions, by reverse mode and by differences. An error of NaN means undecided."""

    analytic: np.ndarray
    numeric: np.ndarray
    error: float
    ratio: float  # analytic / numeric where that is the same in all directions, or NaN
    flat: bool  # the differences are 0, the derivative is not: a step


@dataclass(frozen=True)
class SiteChecked:
    """The slope of the loss at one intermediate value."""

    number: int
    title: str
    layer: str
    line: str
    slope: Slope

    @property
    def wrong(self) -> bool:
        return self.slope.error > TOLERANCE


@dataclass(frozen=True)
class OwnChecked:
    """The slope of a function with a custom derivative, in isolation, in its worst operand."""

    number: int
    slope: Slope
    identity: bool  # it returns its argument: its derivative differs on purpose


def common(ratios: np.ndarray) -> float:
    """The common value of these numbers, within a hundredth, or NaN."""
    if len(ratios) == 0 or not np.all(np.isfinite(ratios)):
        return math.nan
    alike = float(np.ptp(ratios)) <= 0.01 * max(1e-3, float(np.max(np.abs(ratios))))
    return float(np.median(ratios)) if alike else math.nan


def slope_of(analytic: np.ndarray, values: np.ndarray, start: float, floor: float = 1e-7) -> Slope:
    """From `values[direction, epsilon, (+, -)]` and the value at the start: what the differences say.

    Right at one epsilon is right. If the one-sided slopes differ there is a kink, and the result is undecided.
    """
    steps = np.asarray(EPSILONS)
    central = (values[..., 0] - values[..., 1]) / (2 * steps)
    forward, backward = (values[..., 0] - start) / steps, (start - values[..., 1]) / steps
    best = np.argmin(np.abs(central - analytic[:, None]), axis=1)
    numeric = np.take_along_axis(central, best[:, None], axis=1)[:, 0]
    least = floor * abs(start) + _LEAST
    size = max(float(np.max(np.abs(analytic) + np.abs(numeric))), least)
    bend = float(np.max(np.abs(forward - backward)[:, -1]))
    spread = float(np.max(np.abs(central[:, 0] - central[:, 1])))
    gap = np.abs(analytic - numeric)
    error = float(np.max(gap)) / size
    if not math.isfinite(error) or (error > TOLERANCE and max(bend, spread) > 0.2 * float(np.max(gap))):
        error = math.nan
    flat = error > TOLERANCE and float(np.max(np.abs(central))) <= least
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = analytic / numeric
    return Slope(analytic, numeric, error, common(ratios), flat)


def _along(noise: Array, value: Array, size: Array) -> Array:
    """Directions that move each entry in proportion to its size: a probability stays one, a 0 behind a kink stays 0."""
    scale = jnp.where(value == 0, 0.0, jnp.abs(value) + _OF_SCALE * size)
    return noise * jnp.where(size == 0, 1.0, scale)


def _grid() -> tuple[np.ndarray, np.ndarray]:
    directions, steps = np.meshgrid(np.arange(DIRECTIONS), [s * e for e in EPSILONS for s in (1, -1)], indexing="ij")
    return directions.ravel(), steps.ravel()


def _alone(equation: Any, given: list[Any], operand: int, noise: Array, cotangents: list[Any]) -> tuple[Array, ...]:
    """One operand of one equation: the slope by reverse mode, the values of the differences, whether it is identity."""
    floats = [jnp.issubdtype(v.aval.dtype, jnp.floating) for v in equation.outvars]

    def of(value: Array) -> Array:
        results = bind(equation, [*given[:operand], value, *given[operand + 1 :]])
        return sum((jnp.sum(u * r) for u, r, ok in zip(cotangents, results, floats, strict=True) if ok), jnp.zeros(()))

    start = given[operand]
    along = _along(noise, start, jnp.sqrt(jnp.mean(start**2)))
    value, gradient = jax.value_and_grad(of)(start)
    directions, steps = _grid()
    values = jax.lax.map(lambda one: of(start + one[1] * along[one[0]]), (jnp.asarray(directions), jnp.asarray(steps)))
    results = bind(equation, given)
    same = [jnp.all(r == start) for r in results if r.shape == start.shape and r.dtype == start.dtype]
    identity = jnp.any(jnp.stack(same)) if same else jnp.asarray(False)
    return value, jnp.tensordot(along, gradient, start.ndim), values, identity


def _moving(place: Place) -> list[int]:
    """The operands of an equation whose derivative matters: 64-bit numbers that move with the parameters."""
    kinds = [getattr(v.aval, "dtype", None) for v in place.equation.invars]
    return [i for i, (o, kind) in enumerate(zip(place.operands, kinds, strict=True)) if o.moves and kind == np.float64]


@dataclass(frozen=True)
class _Layout:
    """The values at all sites as one vector, each site's a piece of it; `owner` is the site of each entry.

    One vector is far fewer operations to compile than a piece at a time.
    """

    sites: tuple[int, ...]
    sizes: tuple[int, ...]
    pieces: dict[int, slice]
    owner: np.ndarray


def _layout(program: Program, sites: Sequence[int]) -> _Layout:
    sizes = [math.prod(program.sites[number].shape) for number in sites]
    pieces = {n: slice(end - size, end) for n, end, size in zip(sites, np.cumsum(sizes), sizes, strict=True)}
    owner = np.repeat(np.arange(len(sites)), sizes).astype(np.int32)
    return _Layout(tuple(sites), tuple(sizes), pieces, owner)


def _watched(
    program: Program, arguments: Sequence[Any], layout: _Layout, alone: Sequence[int]
) -> tuple[Array, Array, dict[int, list[Any]]]:
    """The loss as it is, the values at all sites, and what each function at `alone` is given."""
    taps: dict[int, list[Any]] = {}
    kept: dict[int, Array] = {}

    def visit(number: int, equation: Any, given: list[Any]) -> list[Any]:
        results = bind(equation, given)
        if number in alone:
            taps[number] = given
        if number in layout.pieces:
            kept[number] = results[0].ravel()
        return results

    value = program.evaluate(arguments, visit)[0]
    values = jnp.concatenate([kept[number] for number in layout.sites]) if layout.sites else jnp.zeros(0)
    return value, values, taps


def _nudged(program: Program, arguments: Sequence[Any], layout: _Layout, nudges: Array) -> Array:
    """The loss when the value at each site is moved by its piece of `nudges`."""

    def visit(number: int, equation: Any, given: list[Any]) -> list[Any]:
        results = bind(equation, given)
        if number in layout.pieces:
            results[0] = results[0] + nudges[layout.pieces[number]].reshape(results[0].shape)
        return results

    return program.evaluate(arguments, visit)[0]


def _at_sites(
    loss: Callable[[Array], Array], start: Array, noise: Array, owner: Array, sizes: Sequence[int]
) -> tuple[Array, Array]:
    """One site at a time along each direction: the slopes by reverse mode, and the values of the differences."""
    count = len(sizes)

    def summed(values: Array) -> Array:
        return jax.ops.segment_sum(values, owner, count)

    along = _along(noise, start, jnp.sqrt(summed(start**2) / jnp.asarray(sizes, float))[owner])
    gradient = jax.grad(loss)(jnp.zeros(len(start)))
    analytic = jnp.stack([summed(one * gradient) for one in along], axis=1)

    def moved(one: tuple[Array, Array, Array]) -> Array:
        chosen, direction, step = one
        return loss(jnp.where(owner == chosen, step * along[direction], 0.0))

    directions, steps = _grid()
    grid = (np.repeat(np.arange(count), len(steps)), np.tile(directions, count), np.tile(steps, count))
    values = jax.lax.map(moved, jax.tree.map(jnp.asarray, grid)) if count else jnp.zeros(0)
    return analytic, values.reshape(count, DIRECTIONS, len(EPSILONS), 2)


def _worst_operands(asked: Sequence[tuple[int, int]], own: Sequence[Any]) -> tuple[OwnChecked, ...]:
    """Of each function the operand whose derivative is furthest off."""
    worst: dict[int, OwnChecked] = {}
    for (number, _), (start, slopes, differences, identity) in zip(asked, own, strict=True):
        slope = slope_of(slopes, differences.reshape(DIRECTIONS, len(EPSILONS), 2), float(start))
        before = worst.get(number)
        if before is None or not before.slope.error >= np.nan_to_num(slope.error):
            worst[number] = OwnChecked(number, slope, bool(identity))
    return tuple(worst.values())


def measure_sites(
    program: Program,
    places: Sequence[Place],
    arguments: Sequence[Any],
    sites: Sequence[int],
    alone: Sequence[int],
    generator: np.random.Generator,
) -> tuple[tuple[SiteChecked, ...], tuple[OwnChecked, ...]]:
    """The slopes of the loss at `sites`, and those of the functions at `alone` by themselves; in 64 bits."""
    asked = [(number, operand) for number in alone for operand in _moving(places[number])[:3]]
    layout = _layout(program, sites)
    noise = generator.normal(size=(DIRECTIONS, len(layout.owner)))
    local = [
        (
            generator.normal(size=(DIRECTIONS, *places[number].equation.invars[operand].aval.shape)),
            [generator.normal(size=v.aval.shape) for v in places[number].equation.outvars],
        )
        for number, operand in asked
    ]

    @compile_quickly
    def everything(arguments: list[Any], noise: Array, owner: Array, local: list[Any]) -> Any:
        value, start, taps = _watched(program, arguments, layout, alone)
        loss = partial(_nudged, program, arguments, layout)
        analytic, values = _at_sites(loss, start, noise, owner, layout.sizes)
        own = [_alone(places[n].equation, taps[n], o, *given) for (n, o), given in zip(asked, local, strict=True)]
        return value, analytic, values, own

    value, analytic, values, own = jax.device_get(everything(list(arguments), noise, layout.owner, local))
    checked = []
    for i, number in enumerate(sites):
        site = program.sites[number]
        slope = slope_of(analytic[i], values[i], float(value))
        checked.append(SiteChecked(number, site.title, site.layer, site.line, slope))
    return tuple(checked), _worst_operands(asked, own)
