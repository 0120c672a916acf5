"""How many networks train at once in one population.

On an accelerator many, since one alone leaves it idle. On a CPU core only small ones, since the weights of larger ones
fall out of its cache. Where between is a question to the machine: `Measured` asks it.

Given(64)       always this many
BySize()        by the number of parameters alone: the same choice on every run
Measured()      the fastest of a few, timed on the networks at hand
"""

import abc
import math
from typing import Any

import jax

from ...curvature.objective import Examples
from ...training.population import Member, Population
from ...training.state import State

_SMALL = 3_000  # parameters up to which 8 networks at once beat one after another on a CPU core
_FEW = 8
MANY = 256  # networks at once on an accelerator
_MEASURED = 2  # sizes that are timed: each costs two compilations, as much time as many a trial


def _power(count: int) -> int:
    """The next power of two, so that populations of similar size are one program."""
    return 1 << max(0, count - 1).bit_length()


def count_parameters(state: State) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(state.parameters))


class AbstractSlots(abc.ABC):
    @property
    def together(self) -> bool:
        """Whether the folds of a trial train in one population: not where large networks train alone."""
        return jax.default_backend() != "cpu"

    @abc.abstractmethod
    def choose(self, member: Member, state: State, train: Examples, valid: Examples, waiting: int) -> int:
        """The number of slots for networks like this one, when so many are waiting."""


class Given(AbstractSlots):
    """A fixed number."""

    def __init__(self, count: int):
        self.count = count

    @property
    def together(self) -> bool:
        return self.count > 1

    def choose(self, member: Member, state: State, train: Examples, valid: Examples, waiting: int) -> int:
        return self.count


class BySize(AbstractSlots):
    """Small networks together, large ones alone; on an accelerator as many as are waiting.

    On a CPU the size of the network alone decides, however many wait: a program of another width adds in another
    order, and a study is to be the same to the last bit with one worker and with many.
    """

    def choose(self, member: Member, state: State, train: Examples, valid: Examples, waiting: int) -> int:
        if jax.default_backend() != "cpu":
            return min(MANY, 8 if waiting <= 8 else -(-waiting // 16) * 16)  # few sizes: each is a program
        return _FEW if count_parameters(state) <= _SMALL else 1


class Measured(AbstractSlots):
    """The fastest of a few numbers, by the time of a few updates. Sizes that were measured answer for others."""

    def __init__(self, candidates: tuple[int, ...] = ()):
        self.candidates = candidates
        self.few = float("inf")  # the fewest parameters at which the least candidate won, ...
        self.many = 0  # ... and the most at which the largest did
        self.told: list[dict[str, Any]] = []

    def choose(self, member: Member, state: State, train: Examples, valid: Examples, waiting: int) -> int:
        candidates = self.candidates or ((1, 8) if jax.default_backend() == "cpu" else (32, 256))
        candidates = tuple(sorted({min(_power(waiting), count) for count in candidates}))
        if len(candidates) == 1:
            return candidates[0]
        size = count_parameters(state)
        # What is too large to share a core is so at any larger size; what is small enough, at any smaller one.
        if size >= self.few:
            return candidates[0]
        if size <= self.many:
            return candidates[-1]
        if len(self.told) >= _MEASURED:
            nearest = min(self.told, key=lambda one: abs(math.log(one["parameters"] / size)))
            return max(candidates[0], min(nearest["slots"], candidates[-1]))
        seconds = {}
        for count in candidates:
            population = Population(member, state, train, valid, slots=count)
            for slot in range(count):
                population.fill(slot, member, state)
            seconds[count] = population.seconds_per_update() / count
        best = min(seconds, key=lambda count: seconds[count])
        if best == candidates[0]:
            self.few = min(self.few, size)
        if best == candidates[-1]:
            self.many = max(self.many, size)
        self.told.append({"parameters": size, "seconds_per_update": seconds, "slots": best})
        return best
