"""The contracts of all parts. To add a part, subclass one, declare its knobs, and pass an instance.

Each is an abstract spec; each contract is written here once and holds for every subclass.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, Scalar

from ..runtime.errors import RequestError
from .dataset import Column, Dataset, InputLayout, Task
from .fitted_scaler import FittedScaler
from .knobs import Spec
from .networks import score_in_chunks
from .sparse.rows import Rows


class Batch(eqx.Module):
    """B examples at once. Slots beyond the end of an epoch hold real examples of weight 0.

    `total` is T, the number of training examples, in a stream that of the examples seen so far; `present` is 1 for a
    slot in use, 0 for one beyond the end. `rows` are the indices of the examples in the training set, if known.
    `memory` is what the criterion stored at the last update, if anything. `labelled` is the weight of the training
    examples that have a target, as a share of T; without it the share is taken from the batch. `update` is the number
    of the current update, for schedules. `beside` are the further examples that the criterion asked for.
    """

    inputs: Rows
    targets: Array
    weights: Float[Array, " B"]
    present: Float[Array, " B"]
    total: Scalar
    rows: Int[Array, " B"] | None = None
    memory: PyTree = None
    labelled: Scalar | None = None
    update: Int[Array, ""] | None = None
    beside: "Batch | None" = None


class Narrowed(NamedTuple):
    """Columns that an update reads beside those of its rows, and its memory once their places in a table are known."""

    columns: Int[Array, " k"]
    memory: Callable[[Int[Array, " k"]], PyTree]


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


class AbstractScaler(Spec):
    @abc.abstractmethod
    def fit(self, inputs: Any, columns: tuple[Column, ...]) -> FittedScaler:
        """A module that maps one raw example to the network's input, its statistics taken from these inputs alone."""


class AbstractBatches(Spec):
    size: eqx.AbstractVar[int]

    @abc.abstractmethod
    def indices(self, updates: Int[Array, " N"], count: int, *, key: Key[Array, ""]) -> tuple[Array, Array, Array]:
        """For each update its examples (N, B), which slots are present (N, B), and the age after it (N,)."""

    @abc.abstractmethod
    def limit_examples(self, count: int) -> int | None:
        """The age at which the order has no more examples, if it ever ends."""

    def examples_seen(self, update: Int[Array, ""], count: int) -> Int[Array, ""] | None:
        """The examples seen with this update, for an order that repeats none: they are the T of a penalty (row D2)."""
        return None

    def is_whole(self, count: int) -> bool:
        """Whether every update learns from all `count` examples in the order in which they lie: nothing is copied."""
        return False


class AbstractModel(Spec):
    @abc.abstractmethod
    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> eqx.Module:
        """A network: one example of this shape in, this many outputs out; with `key=None` it is deterministic."""

    def takes_sparse(self) -> bool:
        """Whether its network reads `SparseRows`, once `for_inputs` has said that they come; else they are dense."""
        return False

    def for_inputs(self, layout: InputLayout | None) -> "AbstractModel":
        """The same model for inputs of this layout; itself where it treats all inputs alike, which text forbids."""
        if layout is not None and layout.texts:
            raise RequestError(
                f"{type(self).__name__} cannot read text: leave the column out (`--drop`), or use the model `Mlp`."
            )
        return self

    def started(self, network: PyTree, inputs: Rows) -> PyTree:
        """The network that `build` made, with what it reads off the training inputs: visible biases, edges of bins."""
        return network

    def check_inputs(self, inputs: Rows) -> None:
        """Refuses inputs that it cannot model, in one line."""


ValueAndTerms = tuple[Scalar, dict[str, Float[Array, "..."]]]


class AbstractCriterion(Spec):
    """What is minimised, and how an example is scored. The methods after `examples` are optional abilities."""

    # "inputs": ignores targets, and the network's output is a code; "both": a target may be missing (-1, or NaN).
    learns_from: ClassVar[Literal["targets", "inputs", "both"]] = "targets"

    @abc.abstractmethod
    def __call__(self, model: PyTree, batch: Batch, *, key: Key[Array, ""]) -> ValueAndTerms:
        """(1/B)[sum of the losses + (B'/T) lambda penalty], and its terms by name.

        The terms "loss" and "score", where given, hold one value an example, for the training curves; "memory" is
        what the next update finds in `batch.memory`.
        """

    @abc.abstractmethod
    def examples(self, model: PyTree, inputs: Rows, targets: Array) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The stopping score and the loss of each example, the model deterministic."""

    def link(self, output: Float[Array, " k"]) -> Float[Array, " k"]:
        """The prediction that an output stands for: probabilities for classes and labels, numbers as they are."""
        return output

    def takes_sparse(self) -> bool:
        """Whether it gives inputs to the network and reads them no further, so that they may be `SparseRows`."""
        return False

    def narrowed(self, batch: Batch, *, key: Key[Array, ""]) -> "Narrowed | None":
        """What an update needs of a network's `column_tables` beside the rows of its sparse inputs; None: all of it."""
        return None

    def check_task(self, task: Task) -> None:
        """Raises if it cannot learn the task; one that reads targets and says no more learns numbers."""
        if self.learns_from != "inputs" and task.kind != "numbers":
            raise RequestError(
                "a plain loss function, or a criterion without `link` and `check_task`, cannot say how outputs become "
                f"{task.kind}. Subclass `AbstractCriterion` and give it both, or use `Supervised(loss=...)`."
            )

    def for_targets(self, task: Task, targets: np.ndarray) -> "AbstractCriterion":
        """The criterion for this task, whose training targets these are; itself if it needs to know neither."""
        return self

    def check_network(self, network: PyTree) -> None:
        """Raises if it cannot train this network, and names a model that it can (`require_methods`)."""

    def check_inputs(self, inputs: Rows) -> None:
        """Raises if the inputs are unsuitable, and names the scaler to use."""

    def begin(self, model: PyTree, inputs: Rows, *, key: Key[Array, ""]) -> PyTree:
        """The memory before the first update, such as persistent Markov chains; None where nothing is remembered."""
        return None

    def beside(self, batch: Batch, train: PyTree, *, key: Key[Array, ""]) -> Int[Array, " rows"] | None:
        """The rows of further examples of `train` that an update needs, as `batch.beside`; None where it needs none."""
        return None

    def judge(self, model: PyTree, train: PyTree, valid: PyTree) -> Scores:
        """Score and loss of every validation example, unweighted; both sets are `Examples`."""
        return Scores(*score_in_chunks(lambda *rows: self.examples(model, *rows), valid.inputs, valid.targets))

    def measured(self, model: PyTree) -> tuple[str, ...]:
        """The names of what it tells of an example without targets, lower is better. The first chooses (row E20):

        a score that means the same whatever the number of features, so never the plain reconstruction error.
        `model` is the network, or the spec that builds it.
        """
        return ()

    def measures(self, model: PyTree, inputs: Rows) -> dict[str, Float[Array, " n"]]:
        """Those values for each example, the same at every call."""
        return {}

    def decode(self, model: PyTree, code: Float[Array, " k"]) -> Float[Array, " d"] | None:
        """The input that a code stands for; None where there is no way back."""
        return None

    # Curvature and per-example methods take a criterion apart: a sum over examples of a loss of each one's own
    # output, and a penalty on the parameters. `__call__` is then the same thing put together.

    def not_summed(self) -> str:
        """Why it is no such sum, in a sentence with a remedy; empty where it is one."""
        return (
            f"the criterion {type(self).__name__} gives one number for a batch. Give it as `loss(output, target)`, "
            "or use another optimiser."
        )

    def of_output(self, output: Float[Array, " k"], target: Array) -> Scalar:
        """The loss of one example."""
        raise NotImplementedError(self.not_summed())

    def of_parameters(self, model: PyTree) -> Scalar:
        """The penalty beside the *summed* loss, its coefficient included."""
        return jnp.zeros(())

    def curvature_root(self) -> Callable[..., Float[Array, " k"]] | None:
        """`root(output, target, noise)` = S noise with S S' the loss's Hessian in the output; None where unknown."""
        return None


class AbstractOptimiser(Spec):
    # True: `update` asks `objective` for more than the gradient, and moves all parameters at once. It is traced once
    # before training, so that an unsuitable model or loss raises early.
    needs_objective: ClassVar[bool] = False
    # False, with `needs_objective`: it asks for the criterion and the share of the prior alone, so rows may be sparse.
    reads_examples: ClassVar[bool] = True

    @abc.abstractmethod
    def build(self) -> optax.GradientTransformationExtraArgs:
        """The Optax transformation, created inside the traced function.

        `update` also receives the value of the criterion as `value`, and the whole `objective`.
        """

    @abc.abstractmethod
    def rate(self, state: PyTree) -> Scalar:
        """The learning rate of the last update, for the record; before the first, the initial one."""

    def judged(self, parameters: PyTree, state: PyTree) -> PyTree:
        """The parameters to validate and keep: the trained ones, or an average; a wrapper asks what it wraps."""
        return parameters

    def acts_elementwise(self) -> bool:
        """Whether each element's step depends on that element's gradients and the number of updates alone."""
        return False

    def rests_without_gradient(self) -> bool:
        """Whether an element whose gradient is 0, and all that is remembered of it, stay as they are."""
        return False

    def sized(self, examples: int) -> Self:
        """The same optimiser with room for this many training examples; itself if it stores nothing of each."""
        return self


class AbstractStopping(Spec):
    stops_early: ClassVar[bool] = True  # False: the run has a fixed length, whatever validation says

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
