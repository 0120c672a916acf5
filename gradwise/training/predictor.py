"""The trained network with all it needs to read raw rows: scaler, network, link, temperature, target units.

    predictor.predict(rows)              # probabilities (n, k), or numbers (n, k)

The training data is not needed. `model_files` writes it down, `committee` lets several answer together.
"""

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..runtime.compilation import SMALL, options_for
from ..runtime.errors import RequestError
from ..runtime.memory import row_blocks
from ..specs.contracts import AbstractCriterion
from ..specs.dataset import Column, InputLayout, Task
from ..specs.fitted_scaler import FittedScaler
from ..specs.networks import apply_batch, as_network
from ..specs.sequences import Sequences, with_steps_of
from ..specs.sparse.rows import Rows, SparseRows, is_csr, longest_row

_AT_ONCE = 2**23  # numbers that are scaled before networks see them
_SPARSE_ROWS = 2**13  # of a CSR matrix that are laid out before networks see them
_CHUNK = 512  # every forward pass has this many rows, so a row's prediction cannot depend on its neighbours


def _forward(network: PyTree, rows: Rows) -> Float[Array, "chunk k"]:
    return apply_batch(network, rows, None)


@functools.cache
def _forward_program() -> Any:
    """On a GPU, tuning the program of each network of a committee would take longer than all of them run."""
    jit: Any = eqx.filter_jit  # whose type does not mention the options that it passes on
    return jit(_forward, compiler_options=options_for(SMALL))


@eqx.filter_jit
def _link(criterion: AbstractCriterion, outputs: Float[Array, "n k"]) -> Float[Array, "n k"]:
    return jax.vmap(criterion.link)(outputs)


def _slots_for(matrix: Any) -> int:
    """Slots for the rows of a CSR matrix, one of few numbers: each is a program of its own."""
    return int(1 << max(3, (longest_row(matrix) - 1).bit_length()))


def in_chunks(function: Callable[[Any], Any], inputs: Any) -> Any:
    """What the function gives for all rows, an array or several, in chunks of one shape: one program serves them all.

    The last chunk is filled with copies of a row, on the host, where another number of rows is no other program. Rows
    may be an array, a `SparseRows`, or a CSR matrix, which becomes one.
    """
    inputs = SparseRows.of(inputs, _slots_for(inputs)) if is_csr(inputs) else inputs
    parts = []
    for start in range(0, inputs.shape[0], _CHUNK):
        count = min(_CHUNK, inputs.shape[0] - start)

        def filled(leaf: Any, start: int = start, count: int = count) -> Array:
            rows = np.asarray(leaf[start : start + count])
            return jnp.asarray(np.concatenate([rows, np.broadcast_to(rows[:1], (_CHUNK - count, *rows.shape[1:]))]))

        found = function(jax.tree.map(filled, inputs))
        parts.append(jax.tree.map(lambda leaf, n=count: np.asarray(leaf)[:n], found))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves, dtype=np.float64), *parts)


def outputs_of(network: PyTree, inputs: Any) -> np.ndarray:
    """The network's outputs for scaled inputs."""
    forward = _forward_program()
    found: np.ndarray = in_chunks(lambda rows: forward(network, rows), inputs)
    return found


def reads_sparse(network: PyTree, scaler: FittedScaler, inputs: Any) -> bool:
    """Whether a network reads these raw inputs as sparse rows."""
    return is_csr(inputs) and scaler.keeps_zeros() and as_network(network).takes_sparse


def _sparse_blocks(rows: Any) -> Iterator[Any]:
    """Some rows of a CSR matrix at a time, whatever its width."""
    for start in range(0, rows.shape[0], _SPARSE_ROWS):
        yield rows[start : start + _SPARSE_ROWS]


def scaled_for(network: PyTree, scaler: FittedScaler, inputs: Any) -> Any:
    """Raw inputs scaled for this network, which it may read as sparse rows."""
    return scaler.apply_sparse(inputs) if reads_sparse(network, scaler, inputs) else scaler.apply(inputs)


class AbstractPredictor(abc.ABC):
    """Raw rows in, predictions out."""

    temperature: float
    task: Task
    columns: tuple[Column, ...]
    shape: tuple[int, ...]

    @abc.abstractmethod
    def predict(self, rows: Any) -> np.ndarray:
        """Predictions (n, k) for raw rows, encoded as the training data was."""


def reads_sequences(predictor: AbstractPredictor) -> bool:
    """Whether each of its rows is a sequence of any length."""
    members: Any = getattr(predictor, "members", (predictor,))
    return bool(members[0].scaler.over_steps)


def reads_trees(predictor: AbstractPredictor) -> bool:
    """Whether each of its rows is a tree."""
    members: Any = getattr(predictor, "members", (predictor,))
    return bool(members[0].scaler.reads_trees())


@dataclasses.dataclass(frozen=True)
class Predictor(AbstractPredictor):
    """One network. `shift` and `scale` bring standardised numbers back to their own units."""

    scaler: FittedScaler
    network: PyTree
    criterion: AbstractCriterion
    temperature: float
    shift: np.ndarray
    scale: np.ndarray
    task: Task
    columns: tuple[Column, ...]
    shape: tuple[int, ...]

    @property
    def outputs(self) -> int:
        """How many numbers a prediction has."""
        if self.task.kind != "inputs":
            return self.task.outputs
        inputs = self.scaler.apply(np.zeros((1, *self.shape)))
        return int(eqx.filter_eval_shape(apply_batch, self.network, inputs, None).shape[1])

    def layout(self, shape: tuple[int, ...]) -> InputLayout | None:
        """What the network was built for: the layout of scaled examples of this shape."""
        told = self.scaler.layout(shape)
        sparse = as_network(self.network).takes_sparse
        return dataclasses.replace(told, sparse=True) if told is not None and sparse else told

    def from_outputs(self, outputs: np.ndarray) -> np.ndarray:
        """Probabilities for classes and labels, numbers in the target's own units; without a target, the features."""
        if self.task.kind in ("numbers", "inputs"):
            return outputs * self.scale + self.shift
        with jax.enable_x64(True):
            linked: np.ndarray = in_chunks(lambda rows: _link(self.criterion, rows), outputs / self.temperature)
        return linked * self.scale + self.shift if self.task.kind == "several" else linked

    def predict(self, rows: Any) -> np.ndarray:
        return predict_each([self], rows)[0]


def outputs_of_each(members: Sequence[Predictor], rows: Any) -> list[np.ndarray]:
    """The outputs of each network for raw rows, which are scaled once for all members that share a scaler."""
    shape = members[0].shape
    rows = with_steps_of(rows, shape) if isinstance(rows, Sequences) else rows
    wanted, given = (shape[1:], rows.shape[2:]) if isinstance(rows, Sequences) else (shape, rows.shape[1:])
    if tuple(given) != wanted:
        raise RequestError(f"each row must have shape {shape}; got {tuple(rows.shape[1:])}.")
    found: dict[int, np.ndarray] = {}
    for scaler in {id(member.scaler): member.scaler for member in members}.values():
        alike = [place for place, member in enumerate(members) if member.scaler is scaler]
        blocks: list[list[np.ndarray]] = [[] for _ in alike]
        sparse = all(reads_sparse(members[place].network, scaler, rows) for place in alike)
        for block in _sparse_blocks(rows) if sparse else (block for _, block in row_blocks(rows, _AT_ONCE)):
            dense: Any = None
            for place, pieces in zip(alike, blocks, strict=True):
                network = members[place].network
                if reads_sparse(network, scaler, block):
                    pieces.append(outputs_of(network, scaler.apply_sparse(block)))
                    continue
                dense = scaler.apply(block) if dense is None else dense
                pieces.append(outputs_of(network, dense))
        found |= {place: np.concatenate(pieces) for place, pieces in zip(alike, blocks, strict=True)}
    return [found[place] for place in range(len(members))]


def predict_each(members: Sequence[Predictor], rows: Any) -> list[np.ndarray]:
    """Each one's predictions for raw rows."""
    if rows.shape[0] == 0:
        return [np.zeros((0, member.outputs)) for member in members]
    several = outputs_of_each(members, rows)
    return [member.from_outputs(outputs) for member, outputs in zip(members, several, strict=True)]


def fit_temperature(criterion: AbstractCriterion, outputs: np.ndarray, targets: np.ndarray) -> float:
    """The temperature that makes validation probabilities most likely (row J9); 1 where there is no optimum inside.

    The loss is convex in 1 / temperature, so Newton's steps within a shrinking bracket end in a few turns; importing
    SciPy's minimiser would take longer than all of them.
    """
    if (outputs.argmax(1) == targets).all():
        return 1.0  # without an error, sharper is always better: the validation set cannot tell how sharp
    outputs = outputs - outputs.max(1, keepdims=True)
    right = outputs[np.arange(len(targets)), targets]
    low, high, inverse = np.exp(-3.0), np.exp(3.0), 1.0
    chances, products = np.empty_like(outputs), np.empty_like(outputs)
    for _ in range(60):
        np.exp(np.multiply(inverse, outputs, out=chances), out=chances)
        chances /= chances.sum(1, keepdims=True)
        mean = np.multiply(chances, outputs, out=products).sum(1)
        slope = float((mean - right).mean())
        np.square(outputs, out=products)
        curvature = float((np.multiply(chances, products, out=products).sum(1) - mean**2).mean())
        low, high = (low, inverse) if slope > 0 else (inverse, high)
        step = inverse - slope / curvature if curvature > 0 else np.inf
        new = step if low < step < high else np.sqrt(low * high)
        if abs(new - inverse) <= 1e-10 * inverse:
            break
        inverse = float(new)
    return float(1.0 / inverse) if abs(np.log(inverse)) < 2.9 else 1.0
