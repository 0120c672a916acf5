"""Forward and central differences of a traced loss, one parameter entry at a time, all in one compiled program.

    differences = Differences.of(subject, key=key)                 traced once, in 64 bits
    plus = differences.values([3, 7], [1e-4, 1e-4])                the loss with entries 3 and 7 moved by 1e-4
    judge_differences(analytic, start, epsilons, plus, minus, unit, floor, tolerance)

The parameters are one flat vector; which entry moves, and by how much, are data, so any number of them costs one
compilation. A loss computed partly in 32 bits or fewer is coarse: `unit` is its rounding.
"""

import dataclasses
import math
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, Key

from ...runtime.compilation import compile_quickly
from ...tracing.program import Program, bind, trace
from ..batch_access import take
from ..subject import Subject, in_64_bits
from .derivative_sites import Operand, Place, as_arrays, inside, reaching, read_sites

RIGHT, WRONG, UNKNOWN = 0, 1, 2
EPSILON = 1e-4  # the chapter's
_LADDER = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-9)
_COARSE_LADDER = (3e-1, 1e-1, 3e-2, 1e-2, 3e-3)
_SECONDS = 20.0  # what the differences may cost on two cores
_OPERATIONS, _BYTES = 4e9, 3e9  # a second
_MOST_EXAMPLES, _BIG, _FEW_EXAMPLES = 32, 1_000_000, 4


def judge_differences(
    analytic: np.ndarray,
    start: float,
    epsilons: np.ndarray,
    plus: np.ndarray,
    minus: np.ndarray,
    unit: float,
    floor: float,
    tolerance: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each entry (rows) at several epsilons (columns, large to small): best difference, relative error, verdict.

    Right at one epsilon is right. The best difference is the one that its neighbours confirm. An entry is wrong only if
    the gap exceeds what the neighbours, rounding and a kink explain: at a kink the one-sided slopes differ.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        central = (plus - minus) / (2 * epsilons)
        bends = np.abs(plus + minus - 2 * start) / epsilons
        noise = 4 * unit * max(abs(start), 1e-30) / epsilons
        between = np.abs(np.diff(central, axis=1))
    pad = np.full((len(central), 1), np.inf)
    doubt = noise + np.minimum(np.hstack([pad, between]), np.hstack([between, pad]))
    doubt = np.where(np.isfinite(doubt), doubt, np.inf)
    best = np.argmin(doubt, axis=1)[:, None]
    numeric, unsure, rough = (np.take_along_axis(table, best, axis=1)[:, 0] for table in (central, doubt, noise))
    size = np.maximum(np.maximum(np.abs(analytic) + np.abs(numeric), floor), 20 * rough)
    gaps = np.abs(central - analytic[:, None])
    gaps = np.where(np.isfinite(gaps), gaps, np.inf)
    near = np.any(gaps <= tolerance * size[:, None], axis=1)
    gap = np.abs(analytic - numeric)
    # A kink bends alike at every epsilon, a curve the less the smaller it is, a jump the more.
    bends = np.where(np.isfinite(bends), bends, np.inf)
    half = np.min(bends, axis=1) / 2  # the one-sided slopes stand this far on either side of the central one
    kink = (half > 0.1 * gap) & (bends[:, -1] <= 6 * half)
    explained = kink & (gap <= 1.05 * half)
    state = np.where(near | explained, RIGHT, np.where((gap > 5 * unsure) & (half <= 0.1 * gap), WRONG, UNKNOWN))
    error = np.where(near, np.min(gaps, axis=1), gap) / np.maximum(size, 1e-300)
    return numeric, error, np.where(np.isfinite(numeric), state, UNKNOWN)


def _reduced(subject: Subject) -> Subject:
    """A few examples, spread over the batch; all of them if the loss requires a fixed number."""
    most = _MOST_EXAMPLES if subject.size < _BIG else _FEW_EXAMPLES
    if subject.count <= most:
        return subject
    rows = np.unique(np.linspace(0, subject.count - 1, most).astype(int))
    smaller = dataclasses.replace(subject, batch=take(subject.batch, rows))
    try:
        jax.eval_shape(smaller.value, smaller.parameters, smaller.batch, jax.random.key(0))
    except Exception:  # the loss insists on its number of examples, each in its own way
        return subject
    return smaller


def _coarseness(places: tuple[Place, ...], used: frozenset[int]) -> tuple[float, str, str]:
    """The rounding of the least precise value between parameters and loss, its type, and its line."""
    worst = (float(np.finfo(np.float64).eps) / 2, "", "")
    for place in places:
        if place.site.number not in used or not place.above:
            continue
        kinds = [place.site.dtype] if place.site.is_float else []
        for deeper in inside(place.equation):
            kinds += [getattr(variable.aval, "dtype", None) for variable in deeper.outvars]
        for kind in kinds:
            if kind is not None and jnp.issubdtype(kind, jnp.floating):
                unit = float(jnp.finfo(kind).eps) / 2
                if unit > worst[0]:
                    worst = (unit, str(kind), place.site.line)
    return worst


@dataclass(frozen=True)
class Differences:
    """A loss on a few examples as one traced program of a flat vector of parameters."""

    subject: Subject
    program: Program
    places: tuple[Place, ...]
    result: Operand
    flat: Any
    others: list[Any]  # the leaves of the batch and the key
    unravel: Any
    unit: float
    coarse: str  # the type of the least precise value, "" if all have 64 bits
    coarse_line: str
    wide: bool  # computed in 64 bits

    @classmethod
    def of(cls, subject: Subject, *, key: Key[Array, ""]) -> "Differences":
        """Traces once; a loss that cannot be traced in 64 bits is used as it is."""
        small = _reduced(subject)
        try:
            with jax.enable_x64(True), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of mixed precisions: the wider one is our doing
                return cls._traced(small, in_64_bits(small.parameters), in_64_bits(small.batch), key, True)
        except Exception:  # a carry or a result declared as float32: then 32 bits are what there is
            return cls._traced(small, small.parameters, small.batch, key, False)

    @classmethod
    def _traced(cls, subject: Subject, parameters: Any, batch: Any, key: Any, wide: bool) -> "Differences":
        program = trace(subject.value, parameters, batch, key)
        places, result = read_sites(program, parameters)
        unit, coarse, line = _coarseness(places, reaching(places, result))
        flat, unravel = ravel_pytree(parameters)
        others = as_arrays((batch, key))
        if not wide:
            unit, coarse = max(unit, float(np.finfo(np.float32).eps) / 2), coarse or "float32"
        return cls(subject, program, places, result, flat, others, unravel, unit, coarse, line, wide)

    def arguments(self, flat: Any) -> list[Any]:
        return [*jax.tree.leaves(self.unravel(flat)), *self.others]

    @cached_property
    def used(self) -> frozenset[int]:
        return reaching(self.places, self.result)

    @property
    def tolerance(self) -> float:
        return 0.05 if self.coarse else 1e-3

    @property
    def epsilon(self) -> float:
        return EPSILON if not self.coarse else 1e-2 if self.unit < 1e-6 else 1e-1

    @property
    def ladder(self) -> np.ndarray:
        return np.asarray(_COARSE_LADDER if self.coarse else _LADDER)

    @property
    def _jit(self) -> Any:
        return compile_quickly if self.flat.size < _BIG else jax.jit

    @cached_property
    def _gradient(self) -> tuple[float, np.ndarray, int]:
        with jax.enable_x64(self.wide):
            of = jax.value_and_grad(lambda flat: self.program.evaluate(self.arguments(flat))[0])
            compiled = self._jit(of).lower(self.flat).compile()
            value, gradient = jax.device_get(compiled(self.flat))
        told = compiled.cost_analysis() or {}
        told = told[0] if isinstance(told, list) else told
        operations = max(float(told.get("flops", 0.0)) / 3, 2.0 * self.flat.size)
        seconds = operations / _OPERATIONS + 32.0 * self.flat.size / _BYTES + 2e-5
        return float(value), np.asarray(gradient), int(np.clip(_SECONDS / seconds, 60, 4000))

    @property
    def start(self) -> float:
        return self._gradient[0]

    @property
    def analytic(self) -> Float[np.ndarray, " n"]:
        return self._gradient[1]

    @property
    def evaluations(self) -> int:
        """How many evaluations of the loss a check may take, from its operations and its parameters."""
        return self._gradient[2]

    @cached_property
    def _moved(self) -> Any:
        def moved(flat: Array, entries: Array, steps: Array) -> Array:
            one = lambda pair: self.program.evaluate(self.arguments(flat.at[pair[0]].add(pair[1])))[0]  # noqa: E731
            return jax.lax.map(one, (entries, steps))

        return self._jit(moved)

    def values(self, entries: Int[np.ndarray, " m"], steps: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """The loss with each entry moved by its step, the others as they are."""
        chunk = int(np.clip(self.evaluations // 8, 8, 256))
        found = []
        with jax.enable_x64(self.wide):
            for first in range(0, len(entries), chunk):
                these, by = np.asarray(entries[first : first + chunk]), np.asarray(steps[first : first + chunk])
                room = (0, chunk - len(these))
                by = np.pad(by, room).astype(self.flat.dtype)
                found.append(np.asarray(self._moved(self.flat, np.pad(these, room).astype(np.int32), by)))
        return np.concatenate(found).astype(np.float64)[: len(entries)] if found else np.zeros(0)

    def both(self, entries: np.ndarray, epsilons: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The values on both sides, (m, number of epsilons), and the true steps: larger for a large entry."""
        sizes = np.maximum(1.0, np.abs(np.asarray(self.flat)[entries].astype(np.float64)))
        steps = sizes[:, None] * epsilons[None]
        each = np.repeat(entries, len(epsilons))
        values = self.values(np.concatenate([each, each]), np.concatenate([steps.ravel(), -steps.ravel()]))
        return values[: steps.size].reshape(steps.shape), values[steps.size :].reshape(steps.shape), steps

    def without_stops(self) -> Float[np.ndarray, " n"]:
        """The gradient of the program without its `stop_gradient`s."""
        stops = {place.site.number for place in self.places if place.site.primitive == "stop_gradient"}

        def visit(number: int, equation: Any, given: list[Any]) -> list[Any]:
            return given if number in stops else bind(equation, given)

        with jax.enable_x64(self.wide):
            of = self._jit(jax.grad(lambda flat: self.program.evaluate(self.arguments(flat), visit)[0]))
            return np.asarray(of(self.flat))


def curve(differences: Differences, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The U-curve: epsilons, and the median relative error of forward and of central differences at each."""
    epsilons = 10.0 ** -np.arange(1, 12)
    plus, minus, steps = differences.both(entries, epsilons)
    analytic = differences.analytic[entries][:, None]
    central, forward = (plus - minus) / (2 * steps), (plus - differences.start) / steps

    def middle(estimate: np.ndarray) -> np.ndarray:
        size = np.maximum(np.abs(analytic) + np.abs(estimate), 1e-300)
        return np.median(np.abs(estimate - analytic) / size, axis=0)

    if len(entries) == 0:
        return epsilons, np.full(len(epsilons), math.nan), np.full(len(epsilons), math.nan)
    return epsilons, middle(forward), middle(central)
