"""Priors over the values of a knob, as inverse distribution functions.

One method, `quantile`, serves every search: random search feeds it uniform numbers, a grid feeds it equally
spaced ones, a quasi-random search a Sobol sequence. `fraction` goes back, for searches that look around a value.

>>> LogUniform(1e-6, 1.0).quantile(0.5)
0.001
>>> Choice((1, 2, 4)).quantile(0.99)
4
"""

import abc
import math
from dataclasses import dataclass
from typing import Any

from ..runtime.errors import RequestError


class AbstractPrior(abc.ABC):
    """A distribution over the values of one knob or switch."""

    @abc.abstractmethod
    def quantile(self, fraction: float) -> Any:
        """The value below which this fraction (in [0, 1)) of the prior lies."""

    @abc.abstractmethod
    def fraction(self, value: Any) -> float:
        """A fraction in [0, 1] that `quantile` maps to this value; beyond an end it is 0 or 1."""

    def supports(self, value: Any) -> bool:
        """Whether the prior holds this value, its ends included."""
        return bool(self.quantile(0.0) <= value <= self.quantile(1.0))


class _AbstractRange(AbstractPrior):
    """All between two ends. Rounding may keep `quantile` from reaching an end, which belongs to it nevertheless."""

    low: float
    high: float

    def supports(self, value: Any) -> bool:
        return bool(self.low <= value <= self.high)


def _within(fraction: float) -> float:
    return min(1.0, max(0.0, fraction))


def _check_ends(low: float, high: float, *, positive: bool) -> None:
    if not low < high:
        raise RequestError(f"a prior's low end must lie below its high end; got low={low}, high={high}.")
    if positive and low <= 0:
        raise RequestError(f"a logarithmic prior needs a positive low end; got low={low}. Use `Uniform` instead.")


@dataclass(frozen=True)
class Uniform(_AbstractRange):
    """Every value of the interval is as likely as any other."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_ends(self.low, self.high, positive=False)

    def quantile(self, fraction: float) -> float:
        return min(self.high, self.low + fraction * (self.high - self.low))

    def fraction(self, value: float) -> float:
        return _within((value - self.low) / (self.high - self.low))


@dataclass(frozen=True)
class LogUniform(_AbstractRange):
    """Every order of magnitude is as likely as any other: for scales and rates."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_ends(self.low, self.high, positive=True)

    def quantile(self, fraction: float) -> float:
        start, end = math.log10(self.low), math.log10(self.high)
        value = float(10.0 ** (start + fraction * (end - start)))
        return min(self.high, max(self.low, value))  # rounding may step over an end, and the end may be a rule

    def fraction(self, value: float) -> float:
        if value <= 0:
            return 0.0
        return _within(math.log(value / self.low) / math.log(self.high / self.low))


@dataclass(frozen=True)
class LogInteger(_AbstractRange):
    """Whole numbers, every order of magnitude as likely as any other: for sizes. Both ends belong."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _check_ends(self.low, self.high, positive=True)

    def quantile(self, fraction: float) -> int:
        start, end = math.log(self.low), math.log(self.high + 1)
        value = int(math.exp(start + fraction * (end - start)) + 1e-9)
        return min(self.high, max(self.low, value))

    def fraction(self, value: float) -> float:
        """The middle, on the logarithmic scale, of the fractions that give this whole number."""
        if value < self.low:
            return 0.0
        start, end = math.log(self.low), math.log(self.high + 1)
        return _within((0.5 * (math.log(value) + math.log(value + 1)) - start) / (end - start))


@dataclass(frozen=True)
class Choice(AbstractPrior):
    """One of several values, all alike or with weights (the chapter's multinomial prior)."""

    values: tuple[Any, ...]
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.values:
            raise RequestError("`Choice` needs at least one value.")
        if self.weights and (len(self.weights) != len(self.values) or min(self.weights) < 0 or sum(self.weights) <= 0):
            raise RequestError("`Choice` needs one non-negative weight for each value, and one of them positive.")

    def quantile(self, fraction: float) -> Any:
        weights = self.weights or (1.0,) * len(self.values)
        mass = fraction * sum(weights)
        for value, weight in zip(self.values, weights, strict=True):
            if mass < weight:
                return value
            mass -= weight
        return next(v for v, w in zip(reversed(self.values), reversed(weights), strict=True) if w > 0)

    def fraction(self, value: Any) -> float:
        """The middle of the fractions that give this value."""
        weights = self.weights or (1.0,) * len(self.values)
        for place, known in enumerate(self.values):
            if known is value or (type(known) is type(value) and bool(known == value)):
                return (sum(weights[:place]) + 0.5 * weights[place]) / sum(weights)
        numbers = [k for k in self.values if isinstance(k, (int, float)) and not isinstance(k, bool)]
        if len(numbers) == len(self.values) and isinstance(value, (int, float)) and value in numbers:
            return self.fraction(numbers[numbers.index(value)])  # 64.0 for 64
        raise RequestError(f"{value!r} is not one of the values of this choice.")

    def supports(self, value: Any) -> bool:
        return value in self.values


@dataclass(frozen=True)
class ZeroOr(AbstractPrior):
    """Exactly 0 with the given probability, otherwise a value of the other prior: for knobs that can be off."""

    other: AbstractPrior
    zero: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.zero < 1:
            raise RequestError(f"`ZeroOr.zero` must be a probability in [0, 1); got {self.zero}.")

    def quantile(self, fraction: float) -> Any:
        if fraction < self.zero:
            return 0.0
        return self.other.quantile((fraction - self.zero) / (1.0 - self.zero))

    def fraction(self, value: float) -> float:
        if value == 0:
            return self.zero / 2
        return self.zero + (1.0 - self.zero) * self.other.fraction(value)

    def supports(self, value: Any) -> bool:
        return value == 0 or self.other.supports(value)
