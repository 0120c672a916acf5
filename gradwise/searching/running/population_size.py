"""How many networks train at once in one population.

On an accelerator many, since one alone leaves it idle. On a CPU core only small ones, since the weights of larger ones
fall out of its cache. Nowhere more than fit into memory.

Given(64)       always this many
BySize()        by the number of parameters alone: the same choice on every run
"""

import abc
import math

import equinox as eqx
import jax

from ...curvature.objective import Examples
from ...runtime import memory
from ...training.population import Member
from ...training.state import State

_SMALL = 3_000  # parameters up to which 8 networks at once beat one after another on a CPU core
_FEW = 8
MANY = 256  # networks at once on an accelerator


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


def slot_bytes(member: Member, state: State, train: Examples, valid: Examples) -> int:
    """About how much memory one slot takes: its state, the gradients, a batch, its order, and one validation."""
    problem = member.sizes(train, valid)
    parameters = count_parameters(state) * 4
    held = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state) if eqx.is_array(leaf))
    widest = max((max(leaf.shape) for leaf in jax.tree.leaves(state.parameters) if leaf.ndim), default=1)
    inputs = math.prod(problem.train.inputs.shape[1:])
    batch = problem.batch_size * (inputs + 6 * widest) * 4
    order = problem.interval_updates * problem.batch_size * 12
    validation = min(len(problem.valid), 4096) * (inputs + 3 * widest) * 4
    examples = jax.tree.leaves((problem.train, problem.valid))
    own = 0 if member.fold is None else sum(leaf.size * leaf.dtype.itemsize for leaf in examples)
    return 2 * held + 2 * parameters + batch + order + validation + own


def free_bytes() -> float:
    """Memory that a population may take on the present device."""
    device = jax.devices()[0]
    told = device.memory_stats() if device.platform != "cpu" else None
    if told and "bytes_limit" in told:
        return 0.8 * (told["bytes_limit"] - told.get("bytes_in_use", 0))
    return 0.5 * memory.available_bytes()
