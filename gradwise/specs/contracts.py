"""The contracts of all parts. To add a part, subclass one, declare its knobs, and pass an instance.

Each is an abstract spec; each contract is written here once and holds for every subclass.
"""

import abc
import inspect
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, Scalar

from ..runtime.memory import require_memory
from .dataset import Column, Dataset, InputLayout, Task
from .knobs import Spec


class Batch(eqx.Module):
    """B examples at once. Slots beyond the end of an epoch hold real examples of weight 0.

    `total` is T, the number of training examples; `present` is 1 for a slot in use, 0 for one beyond the end. `rows`
    are the indices of the examples in the training set, if known. `memory` is what the criterion stored at the last
    update, if anything. `labelled` is the weight of the training examples that have a target, as a share of T; without
    it the share is taken from the batch. `update` is the number of the current update, for schedules.
    """

    inputs: Float[Array, "B ..."]
    targets: Array
    weights: Float[Array, " B"]
    present: Float[Array, " B"]
    total: Scalar
    rows: Int[Array, " B"] | None = None
    memory: PyTree = None
    labelled: Scalar | None = None
    update: Int[Array, ""] | None = None


class Scores(eqx.Module):
    """One validation, example by example: the stopping score, then the loss that breaks ties."""

    score: Float[Array, " V"]
    loss: Float[Array, " V"]


class AbstractSplit(Spec):
    @abc.abstractmethod
    def __call__(self, dataset: Dataset, *, key: Key[Array, ""]) -> tuple[Dataset, Dataset, Dataset | None]:
        """The training, validation and test sets: disjoint, drawn from the key alone. There may be no test set."""

    def bucket(self) -> int:
        """The number of which the sizes of parts are multiples, so that runs of nearly one size share a program."""
        return 1

    def among(self, kept: np.ndarray) -> "AbstractSplit":
        """The same split of the rows that are kept; itself where it does not count rows."""
        return self


class FittedScaler(eqx.Module):
    """A scaler fitted on the training set; it is saved with the network, so that predictions take raw rows.

    `map` is written once, for NumPy and for JAX: `apply` runs it in NumPy, in 64 bits and without compiling; calling
    the module on one example runs it in JAX, differentiable, in the precision that JAX has at the time.
    """

    @abc.abstractmethod
    def map(self, examples: Any, library: Any) -> Any:
        """Raw examples (..., *shape), missing values NaN, to inputs without NaN; `library` is numpy or jax.numpy."""

    @abc.abstractmethod
    def describe(self) -> list[str]:
        """Notes for the report, a sentence each: imputed, constant or unused columns."""

    def layout(self, shape: tuple[int, ...]) -> InputLayout | None:
        """What the inputs of a scaled example of this shape are: numbers if it is one row; None if it is an image."""
        return InputLayout(numbers=shape[0]) if len(shape) == 1 else None

    def __call__(self, example: Array) -> Float[Array, "..."]:
        return self.map(jnp.asarray(example, float), jnp).astype(jnp.float32)

    def apply(self, inputs: Any, dtype: Any = np.float32) -> np.ndarray:
        """All rows of an array or a SciPy sparse matrix; each result depends on its own row alone."""
        rows = max(16, 2**19 // max(1, math.prod(inputs.shape[1:])))  # a few megabytes at a time stay in cache
        done = np.empty(0, dtype)
        for start in range(0, max(1, inputs.shape[0]), rows):
            part = inputs[start : start + rows]
            part = self.map(np.asarray(part.toarray() if hasattr(part, "toarray") else part, np.float64), np)
            if start == 0:
                done = self._room((inputs.shape[0], *part.shape[1:]), dtype)
            with np.errstate(over="ignore"):  # beyond 32 bits is infinity: the network's business, not a warning
                done[start : start + rows] = part
        return done

    @staticmethod
    def _room(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Raises if the dense inputs would not fit into memory."""
        needed = math.prod(shape) * np.dtype(dtype).itemsize
        what = f"{shape[0]} rows of {math.prod(shape[1:])} network inputs need"
        require_memory(needed, what, "Use fewer rows or columns, or `Pca`.", share=0.8)
        return np.empty(shape, dtype)


class AbstractScaler(Spec):
    @abc.abstractmethod
    def fit(self, inputs: Any, columns: tuple[Column, ...]) -> "FittedScaler":
        """A module that maps one raw example to the network's input, its statistics taken from these inputs alone."""


class AbstractBatches(Spec):
    size: eqx.AbstractVar[int]

    @abc.abstractmethod
    def indices(self, updates: Int[Array, " N"], count: int, *, key: Key[Array, ""]) -> tuple[Array, Array, Array]:
        """For each update its examples (N, B), which slots are present (N, B), and the age after it (N,)."""

    @abc.abstractmethod
    def limit_examples(self, count: int) -> int | None:
        """The age at which the order has no more examples, if it ever ends."""

    def is_whole(self, count: int) -> bool:
        """Whether every update learns from all `count` examples in the order in which they lie: nothing is copied."""
        return False


class AbstractModel(Spec):
    @abc.abstractmethod
    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> eqx.Module:
        """A network: one example of this shape in, this many outputs out; with `key=None` it is deterministic."""

    def for_inputs(self, layout: InputLayout | None) -> "AbstractModel":
        """The same model for inputs of this layout; itself where it treats all inputs alike."""
        return self

    def started(self, network: PyTree, inputs: Float[Array, "n ..."]) -> PyTree:
        """The network that `build` made, with what it reads off the training inputs: visible biases, edges of bins."""
        return network

    def check_inputs(self, inputs: Float[Array, "n ..."]) -> None:
        """Refuses inputs that it cannot model, in one line."""


class AbstractCriterion(Spec):
    """What is minimised, and how an example is scored and an output read."""

    @abc.abstractmethod
    def __call__(
        self, model: PyTree, batch: Batch, *, key: Key[Array, ""]
    ) -> tuple[Scalar, dict[str, Float[Array, "..."]]]:
        """(1/B)[sum of the losses + (B'/T) lambda penalty], and its terms by name.

        The terms "loss" and "score", where given, hold one value an example, for the training curves.
        """

    @abc.abstractmethod
    def examples(
        self, model: PyTree, inputs: Float[Array, "n ..."], targets: Array
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The stopping score and the loss of each example, the model deterministic."""

    @abc.abstractmethod
    def link(self, output: Float[Array, " k"]) -> Float[Array, " k"]:
        """The prediction that an output stands for: probabilities for classes and labels, numbers as they are."""

    @abc.abstractmethod
    def check_task(self, task: Task) -> None:
        """Raises if this criterion cannot learn the task."""


class AbstractSummed(AbstractCriterion):
    """A criterion that is a sum over examples of a loss of each one's own output, and a penalty on the parameters.

    Curvature and per-example methods take it apart; its `__call__` is the same thing put together.
    """

    @abc.abstractmethod
    def of_output(self, output: Float[Array, " k"], target: Array) -> Scalar:
        """The loss of one example."""

    @abc.abstractmethod
    def of_parameters(self, model: PyTree) -> Scalar:
        """The penalty beside the *summed* loss, its coefficient included."""

    @abc.abstractmethod
    def not_summed(self) -> str:
        """Why, as it is set now, it is no such sum, in a sentence with a remedy; empty where it is one."""

    @abc.abstractmethod
    def curvature_root(self) -> Callable[..., Float[Array, " k"]] | None:
        """`root(output, target, noise)` = S noise with S S' the loss's Hessian in the output; None where unknown."""


class AbstractUnsupervised(AbstractCriterion):
    """Learns from the inputs alone and ignores targets. The model's output is the code, its features."""

    @abc.abstractmethod
    def measured(self) -> tuple[str, ...]:
        """The names of what it tells of an example, lower is better. The first is the score that chooses (row E20):

        one that means the same whatever the number of features, so never the plain reconstruction error.
        """

    @abc.abstractmethod
    def measures(self, model: PyTree, inputs: Float[Array, "n ..."]) -> dict[str, Float[Array, " n"]]:
        """Those values for each example, the same at every call."""

    @abc.abstractmethod
    def check_inputs(self, inputs: Float[Array, "n ..."]) -> None:
        """Raises if the inputs are unsuitable, and names the scaler to use."""


class AbstractSemiSupervised(AbstractCriterion):
    """Takes examples with and without a target in one batch (row A8); those without have the class -1, or NaN."""

    @abc.abstractmethod
    def check_inputs(self, inputs: Float[Array, "n ..."]) -> None:
        """Raises if the inputs are unsuitable, and names the scaler to use."""


class AbstractRecalling(AbstractCriterion):
    """A criterion with state between updates, such as persistent Markov chains.

    It reads the state from `batch.memory` and returns the new one among its terms under "memory".
    """

    @abc.abstractmethod
    def begin(self, model: PyTree, inputs: Float[Array, "n ..."], *, key: Key[Array, ""]) -> PyTree:
        """The memory before the first update."""


class AbstractJudging(AbstractCriterion):
    """A criterion whose score needs several validation examples at once, such as a probe fitted on codes."""

    @abc.abstractmethod
    def judge(self, model: PyTree, train: PyTree, valid: PyTree) -> Scores:
        """Score and loss of every validation example; both arguments are `Examples`."""


class AbstractOptimiser(Spec):
    @abc.abstractmethod
    def build(self) -> optax.GradientTransformationExtraArgs:
        """The Optax transformation, created inside the traced function.

        `update` also receives the value of the criterion as `value`, and the whole `objective`.
        """

    @abc.abstractmethod
    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        """The parameters to validate and keep: the trained ones, or an average of them."""

    @abc.abstractmethod
    def rate(self, state: PyTree) -> Scalar:
        """The learning rate of the last update, for the record; before the first, the initial one."""

    def evidence(self, state: PyTree) -> dict[str, Any]:
        """What it wrote down during the run, for the record."""
        return {}


class AbstractAsking(AbstractOptimiser):
    """An optimiser that needs more than the gradient from the objective; it updates all parameters at once.

    Before training its update is traced once, so that an unsuitable model or loss raises early.
    """


class AbstractRemembering(AbstractAsking):
    """An optimiser of this kind that stores something for each training example."""

    @abc.abstractmethod
    def sized(self, examples: int) -> "AbstractRemembering":
        """The same optimiser with room for this many training examples."""


class AbstractWatching(AbstractOptimiser):
    """An optimiser that looks at the network now and then, between updates: training changes nothing by it.

    A condition at every update would cost more than the update on an accelerator, so the loop asks at most every
    `every` updates.
    """

    every: eqx.AbstractVar[int]

    @abc.abstractmethod
    def look(self, state: PyTree, parameters: PyTree, objective: Any) -> PyTree:
        """The optimiser's whole state after a look, if one is due; `objective` is that of the coming update."""


class AbstractStopping(Spec):
    @abc.abstractmethod
    def init(self, count: int, validation: int) -> PyTree:
        """The state before the first update, for `count` training and `validation` validation examples."""

    @abc.abstractmethod
    def step(
        self, state: PyTree, age: Int[Array, ""], scores: Scores
    ) -> tuple[PyTree, Bool[Array, ""], Bool[Array, ""]]:
        """The new state, whether this is the best model so far, whether to stop."""

    @abc.abstractmethod
    def interval_examples(self, count: int, validation: int) -> int:
        """How many examples to visit between validations: never fewer than the validation set has."""

    @abc.abstractmethod
    def limit_examples(self, count: int) -> int:
        """The age at which the run ends at the latest."""

    def without_length(self) -> "AbstractStopping":
        """The same rule for a run whose end is given separately; runs of different lengths then share a program."""
        return self

    @abc.abstractmethod
    def patience_examples(self, state: PyTree) -> Int[Array, ""]:
        """The age at which the run ends if the score does not improve."""


def deterministic(model: Any) -> Any:
    """The network with the layers of Equinox that act otherwise in training (dropout) switched to their other mode."""
    nodes = jax.tree.leaves(model, is_leaf=lambda node: hasattr(node, "inference"))
    return eqx.nn.inference_mode(model) if any(hasattr(node, "inference") for node in nodes) else model


def apply(model: Callable[..., Array], example: Array, key: Key[Array, ""] | None) -> Array:
    """Calls a network on one example, with the key where the network takes one; without a key it is deterministic."""
    model = deterministic(model) if key is None else model
    if "key" in inspect.signature(model).parameters:
        return model(example, key=key)
    return model(example)


def apply_batch(model: Callable[..., Array], inputs: Array, key: Key[Array, ""] | None) -> Array:
    """Calls a network on many examples, each with a key of its own; `axis_name` lets it see the batch."""
    if key is None:
        return jax.vmap(lambda x: apply(model, x, None), axis_name="batch")(inputs)
    keys = jax.random.split(key, inputs.shape[0])
    return jax.vmap(lambda x, k: apply(model, x, k), axis_name="batch")(inputs, keys)
