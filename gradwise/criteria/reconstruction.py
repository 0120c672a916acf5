"""The criterion of auto-encoders: the reconstruction error, and penalties on the code.

    Reconstruction()                                             plain, inputs in [0, 1]
    Reconstruction(corruption=Masking(0.25))                     denoising (row A5)
    Reconstruction(on_codes=(Contraction(0.1),))                 contractive (row A6)
    Reconstruction(SquaredError(), on_codes=(KlToTarget(3.0),))  sparse (row A4), any real inputs

Rows of mostly zeros are reconstructed at their non-zeros and at a sample of the zeros (row G3, `sampled_zeros.py`).

The loss is summed over the inputs of an example, as in the chapter, and averaged over examples.

A code can copy a clean input without learning anything, and a larger one copies better. So the *score* of every
auto-encoder is how well it denoises inputs corrupted in one fixed way, `judged_by` (row E20).
"""

import abc
import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree, Scalar

from ..runtime.errors import RequestError
from ..specs.contracts import AbstractCriterion, Batch, Narrowed, ValueAndTerms
from ..specs.knobs import Spec, is_off, knob
from ..specs.networks import apply_batch, require_methods
from ..specs.priors import Choice
from ..specs.sparse.rows import Rows, SparseRows, is_csr
from .corruption import AbstractCorruption, Clean, Masking
from .hidden_units import HiddenUnits, active, run_with_units, sum_on_units
from .penalties import L2, AbstractRegulariser, sum_on_parameters
from .sparse.sampled_zeros import AbstractZeros, Drawn, SampledZeros, sampled_losses, score_sparse


class AbstractReconstructionLoss(Spec):
    """The distance between inputs and their reconstructions, element by element, and the decoder's non-linearity."""

    @abc.abstractmethod
    def elements(self, output: Float[Array, " d"], target: Float[Array, " d"]) -> Float[Array, " d"]:
        """The loss of each input."""

    @abc.abstractmethod
    def link(self, output: Float[Array, " d"]) -> Float[Array, " d"]:
        """The reconstruction, from the decoder's output."""

    @abc.abstractmethod
    def check_range(self, low: float, high: float) -> None:
        """Raise a one-line error if it cannot handle inputs of this range."""


def refuse_outside_unit(what: str, low: float, high: float) -> None:
    """Raise an error for inputs outside [0, 1] if they are treated as probabilities."""
    if low < 0.0 or high > 1.0:
        raise RequestError(
            f"{what} takes inputs in [0, 1], but the scaled ones lie in [{low:.4g}, {high:.4g}]. "
            "Scale with `--set scaler=UnitRange`, or use a squared error and Gaussian units."
        )


@jax.custom_jvp
def _softplus(a: Array) -> Array:
    """log(1 + e^a), finite for every a. With its slope told it costs one exponential each way: 4 % of an update."""
    return jnp.maximum(a, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(a)))


@_softplus.defjvp
def _softplus_slope(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return _softplus(primals[0]), jax.nn.sigmoid(primals[0]) * tangents[0]


class CrossEntropy(AbstractReconstructionLoss):
    """Each input in [0, 1] is a probability, the output its log-odds: exact even if the sigmoid is saturated."""

    def elements(self, output: Float[Array, " d"], target: Float[Array, " d"]) -> Float[Array, " d"]:
        return _softplus(output) - target * output

    def link(self, output: Float[Array, " d"]) -> Float[Array, " d"]:
        return jax.nn.sigmoid(output)

    def check_range(self, low: float, high: float) -> None:
        refuse_outside_unit("the cross-entropy of a reconstruction", low, high)


class SquaredError(AbstractReconstructionLoss):
    """(r - x)^2 with linear outputs: for inputs of any range."""

    def elements(self, output: Float[Array, " d"], target: Float[Array, " d"]) -> Float[Array, " d"]:
        return (output - target) ** 2

    def link(self, output: Float[Array, " d"]) -> Float[Array, " d"]:
        return output

    def check_range(self, low: float, high: float) -> None:
        pass  # any number will do


class SquaredSigmoid(AbstractReconstructionLoss):
    """(r - x)^2 with sigmoid outputs: for inputs in [0, 1] whose squared error is what counts."""

    def elements(self, output: Float[Array, " d"], target: Float[Array, " d"]) -> Float[Array, " d"]:
        return (jax.nn.sigmoid(output) - target) ** 2

    def link(self, output: Float[Array, " d"]) -> Float[Array, " d"]:
        return jax.nn.sigmoid(output)

    def check_range(self, low: float, high: float) -> None:
        refuse_outside_unit("a reconstruction by sigmoid units", low, high)


BatchInputs = Rows
BatchCodes = Float[Array, "B h"]
ExampleWeights = Float[Array, " B"]


class AbstractCodePenalty(Spec):
    """A penalty on the codes of a batch, or on how they respond to the input."""

    # False: it looks at the codes alone, so that the inputs may be sparse rows.
    reads_inputs: ClassVar[bool] = True
    coefficient: float

    @abc.abstractmethod
    def __call__(
        self, model: PyTree, inputs: BatchInputs, codes: BatchCodes, weights: ExampleWeights, *, key: Key[Array, ""]
    ) -> Scalar:
        """The mean over the batch's slots, each example by its weight, without the coefficient.

        `codes` are those of the inputs as encoded, corrupted or not; unused slots have weight 0. A penalty that does
        not suit every model reports this in `findings_in(recipe)`.
        """


def _encode_and_decode(model: PyTree, inputs: Float[Array, "n ..."], key: Any) -> tuple[Array, Array]:
    codes = apply_batch(model, inputs, key)
    return codes, jax.vmap(model.decode)(codes)


class Reconstruction(AbstractCriterion):
    """The reconstruction loss, penalties on codes, and penalties on parameters or on any hidden layer.

    With a corruption, `on_touched` and `on_clean` weight the inputs that it changed and those it did not: (1, 0.5) is
    the double and (1, 0) the full emphasis of Vincent et al. 2010.
    """

    learns_from = "inputs"
    loss: AbstractReconstructionLoss = CrossEntropy()
    corruption: AbstractCorruption = Clean()
    on_codes: tuple[AbstractCodePenalty, ...] = ()
    penalties: tuple[AbstractRegulariser, ...] = (L2(),)
    on_touched: float = knob(
        1.0,
        allowed="[0, inf)",
        prior=Choice((1.0,)),
        row="A5",
        kind="model",
        off=1.0,
        about="the weight of the inputs that the corruption changed",
    )
    on_clean: float = knob(
        1.0,
        allowed="[0, inf)",
        prior=Choice((1.0, 0.5, 0.0)),
        row="A5",
        kind="model",
        off=1.0,
        about="the weight of the inputs that the corruption did not change",
    )
    judged_by: AbstractCorruption = Masking(0.25)
    zeros: AbstractZeros = SampledZeros()

    def __call__(self, model: PyTree, batch: Batch, *, key: Key[Array, ""]) -> ValueAndTerms:
        noise, inner, term_key = jr.split(key, 3)
        sparse = isinstance(batch.inputs, SparseRows)
        spoilt, codes, losses, units = (self._at_sample if sparse else self._at_all)(model, batch, noise, inner)
        slots = batch.weights.shape[0]
        total = jnp.sum(batch.weights * losses) / slots
        for number, term in enumerate(self.on_codes):
            if not is_off(term.coefficient):
                drawn = jr.fold_in(term_key, number)
                total += term.coefficient * term(model, spoilt, codes, batch.weights, key=drawn)
        share = jnp.sum(batch.present) / (slots * batch.total)
        total += share * sum_on_parameters(self.penalties, model)
        if units:
            total += sum_on_units(self.penalties, units, batch.weights)
        return total, {"loss": losses, "score": losses}

    def _at_all(self, model: PyTree, batch: Batch, noise: Any, inner: Any) -> tuple[Any, Array, Array, Any]:
        """The corrupted inputs, their codes, the loss of each example, and the hidden layers a penalty reads."""
        spoilt, touched = self.corruption(batch.inputs, key=noise)
        (codes, outputs), units = self._forward(model, spoilt, inner)
        elements = jax.vmap(self.loss.elements)(outputs, batch.inputs.reshape(batch.inputs.shape[0], -1))
        if not isinstance(self.corruption, Clean) and not (is_off(self.on_touched) and is_off(self.on_clean)):
            emphasis = jnp.where(touched, self.on_touched, self.on_clean)
            elements = emphasis.reshape(elements.shape) * elements
        return spoilt, codes, jnp.sum(elements, axis=1), units

    def _at_sample(self, model: PyTree, batch: Batch, noise: Any, inner: Any) -> tuple[Any, Array, Array, Any]:
        """The same for sparse rows, at their non-zeros and at sampled zeros."""
        assert isinstance(self.zeros, SampledZeros), "else rows are dense"
        rows, (corrupt, sample) = batch.inputs, jr.split(noise)
        shares = self.zeros.shares(rows) if batch.memory is None else batch.memory
        spoilt = dataclasses.replace(rows, values=self.corruption(rows.values, key=corrupt)[0])
        codes = apply_batch(model, spoilt, inner)
        columns, weights = shares if isinstance(shares, Drawn) else self.zeros.draw(shares, key=sample)
        return spoilt, codes, sampled_losses(self.loss.elements, model, codes, rows, columns, weights), ()

    def narrowed(self, batch: Batch, *, key: Key[Array, ""]) -> Narrowed | None:
        penalised = any(not is_off(penalty.coefficient) for penalty in self.penalties)
        if penalised or not isinstance(self.zeros, SampledZeros) or batch.memory is None:
            return None
        _, sample = jr.split(jr.split(key, 3)[0])  # as `__call__` draws them
        columns, weights = self.zeros.draw(batch.memory, key=sample)
        return Narrowed(columns, lambda places: Drawn(places, weights))

    def _forward(self, model: PyTree, inputs: Array, key: Any) -> tuple[tuple[Array, Array], tuple[HiddenUnits, ...]]:
        """Codes and outputs of the decoder, and the hidden layers of both if a penalty reads them: all of one pass."""
        if active(self.penalties):
            return run_with_units(_encode_and_decode, model, inputs, key)
        return _encode_and_decode(model, inputs, key), ()

    def examples(self, model: PyTree, inputs: Rows, targets: Array) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        found = self.measures(model, inputs)
        return found["denoising_error"], found["reconstruction_error"]

    def measured(self, model: PyTree) -> tuple[str, ...]:
        return ("denoising_error", "reconstruction_error")

    def measures(self, model: PyTree, inputs: Rows) -> dict[str, Float[Array, " n"]]:
        if isinstance(inputs, SparseRows):
            spoilt, _ = self.judged_by(jnp.asarray(inputs.values), key=jr.key(0))
            sparse = score_sparse(self.loss.elements, model, inputs, spoilt)
            return dict(zip(self.measured(model), sparse, strict=True))
        spoilt, _ = self.judged_by(inputs, key=jr.key(0))  # one noise for all: scores differ by the model alone
        flat = inputs.reshape(inputs.shape[0], -1)
        outputs = (_encode_and_decode(model, given, None)[1] for given in (spoilt, inputs))
        errors = (jnp.sum(jax.vmap(self.loss.elements)(each, flat), axis=1) for each in outputs)
        return dict(zip(self.measured(model), errors, strict=True))

    def check_inputs(self, inputs: Rows) -> None:
        values = inputs.values if isinstance(inputs, SparseRows) else inputs  # an empty slot holds 0
        self.loss.check_range(float(jnp.min(values)), float(jnp.max(values)))

    def takes_sparse(self) -> bool:
        by_itself = self.corruption.keeps_zeros and self.judged_by.keeps_zeros
        all_alike = is_off(self.on_touched) and is_off(self.on_clean) and not active(self.penalties)
        codes_alone = all(is_off(term.coefficient) or not term.reads_inputs for term in self.on_codes)
        return isinstance(self.zeros, SampledZeros) and by_itself and all_alike and codes_alone

    def begin(self, model: PyTree, inputs: Rows, *, key: Key[Array, ""]) -> PyTree:
        if not isinstance(inputs, SparseRows):
            return None
        assert isinstance(self.zeros, SampledZeros), "else rows are dense"
        require_methods("Reconstruction of sparse rows", model, ("decode_at",), "MlpAutoEncoder")
        return self.zeros.shares(inputs)

    def check_network(self, network: PyTree) -> None:
        require_methods("Reconstruction", network, ("decode",), "AutoEncoder")

    def decode(self, model: PyTree, code: Float[Array, " k"]) -> Float[Array, " d"]:
        return self.loss.link(model.decode(code))


def unit_range(inputs: Any) -> bool:
    """Whether all inputs lie in [0, 1], so that they can be treated as probabilities."""
    inputs = inputs.values if isinstance(inputs, SparseRows) else inputs.data if is_csr(inputs) else inputs
    if not inputs.size:
        return True
    return bool(inputs.min() >= 0.0) and bool(inputs.max() <= 1.0)
