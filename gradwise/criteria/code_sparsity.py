"""Sparsity penalties (rows A4, D5): each example activates few units, of a code or of any hidden layer.

    Reconstruction(on_codes=(KlToTarget(3.0),))             the mean activation of each unit near 0.05; codes in (0, 1)
    Reconstruction(SquaredError(), on_codes=(L1Codes(),))   values at or near 0; for rectifiers and linear codes
    Reconstruction(on_codes=(StudentT(0.1), BiasPenalty(0.01)))
    Supervised(SoftmaxLoss(), penalties=(L1Codes(0.01),))   all hidden layers of any network
    Supervised(SoftmaxLoss(), penalties=(KlToTarget(1.0, where="layers.1"),))

In `penalties` the coefficient is relative to the loss of an example, as it is beside a reconstruction error.

| name | one example or one batch | for codes |
|---|---|---|
| L1Codes | sum_j abs h_j | any; 0 is the resting value |
| StudentT | sum_j log(1 + h_j^2) | any; 0 is the resting value |
| SquaredToTarget | sum_j (rho - mean h_j)^2 | any that can have the mean rho |
| KlToTarget | sum_j KL(rho, mean h_j) | in (0, 1) alone |
| BiasPenalty | sum_j log(1 + exp b_j) | any, but weights can compensate |

The units need a resting value: tanh rests at 0, but a penalty on means is also satisfied by a balance of +1 and -1.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree, Scalar

from ..records.finding import Finding
from ..runtime.errors import RequestError
from ..specs.knobs import knob, switch
from ..specs.networks import as_network
from ..specs.paths import parts
from ..specs.priors import LogUniform, Uniform
from .hidden_units import ALL, HiddenUnits
from .penalties import AbstractRegulariser
from .reconstruction import AbstractCodePenalty, BatchCodes, BatchInputs, ExampleWeights

_FAR = 1e4
_LEAST = 1e-6  # of a mean activation within a logarithm: its slope stays finite in 32 bits


def _coefficient(default: float, low: float, high: float) -> Any:
    return knob(
        default,
        allowed="[0, inf)",
        prior=LogUniform(low, high),
        row="A4",
        kind="capacity",
        off=0.0,
        about="the weight of sparsity relative to the loss or the reconstruction error of an example",
    )


def _where() -> Any:
    return switch(
        ALL,
        row="D5",
        about="among `penalties`: which hidden layers, by path (`layers.0`); by default all",
    )


def _target() -> Any:
    return knob(
        0.05,
        allowed="(0, 1)",
        prior=Uniform(0.02, 0.2),
        row="A4",
        kind="capacity",
        about="rho, the mean activation that each unit should have",
    )


def _by_example(values: Float[Array, "B h"], weights: Float[Array, " B"]) -> Scalar:
    """The sum over the units, averaged over the slots."""
    return jnp.sum(weights * jnp.sum(values, axis=1)) / weights.shape[0]


def _by_batch(codes: Float[Array, "B h"], weights: Float[Array, " B"]) -> tuple[Float[Array, " h"], Float[Array, ""]]:
    """The mean of each unit over the examples in use, and their share of the batch."""
    there = jnp.sum(weights)
    mean = weights @ codes / jnp.maximum(there, 1e-12)  # a batch of nothing has share 0: no NaN beside it
    return mean, there / weights.shape[0]


def code_activation(model: PyTree) -> Any:
    """The non-linearity of the code: of a network its last hidden layer's, of a spec the one it declares."""
    layers = as_network(model).hidden_layers
    if layers:
        return layers[-1].activation
    declared = {path.rpartition(".")[2]: part for path, part in reversed([*parts(model)])}
    return declared.get("code_activation") or declared.get("activation")


def code_range(activation: Any) -> tuple[float, float]:
    """The least and the largest value of a monotone non-linearity (those at -1e4 and 1e4)."""
    with jax.ensure_compile_time_eval():
        low, high = activation(jnp.asarray([-_FAR, _FAR], jnp.float32))
        return float(low), float(high)


def _unfit(name: str, recipe: Any) -> tuple[Finding, ...]:
    """A warning if the code's units saturate at both signs (tanh): they have no resting value there."""
    activation = code_activation(recipe.model)
    if activation is None:
        return ()
    low, high = code_range(activation)
    if low >= 0.0 or high >= _FAR / 2:
        return ()
    return (
        Finding(
            "warning",
            f"{name} on units of range [{low:.3g}, {high:.3g}] ({type(activation).__name__}): they saturate at both "
            "signs, so a low mean or a small code is not a sparse one.",
            row="A4",
            next="use Sigmoid() or Rectifier() for the code.",
            code="GW704",
        ),
    )


class AbstractSparsity(AbstractCodePenalty, AbstractRegulariser):
    """A penalty on the activations of a layer of units: in `on_codes` of the code, in `penalties` of hidden layers."""

    reads_inputs = False
    where: eqx.AbstractVar[str]

    @property
    def reads_units(self) -> bool:
        return True

    @abc.abstractmethod
    def of_units(self, layer: HiddenUnits, weights: Float[Array, " rows"]) -> Scalar:
        """The mean over the rows, each by its weight, without the coefficient."""

    def __call__(
        self, model: PyTree, inputs: BatchInputs, codes: BatchCodes, weights: ExampleWeights, *, key: Key[Array, ""]
    ) -> Scalar:
        if self.where != ALL:
            raise RequestError(
                f"`where={self.where!r}` of {type(self).__name__} chooses hidden layers, but `on_codes` holds "
                "penalties of the code. Put it into the criterion's `penalties`."
            )
        layers, activation = as_network(model).hidden_layers, code_activation(model)
        bias = layers[-1].bias if layers else None
        span = (lambda: None) if activation is None else (lambda: code_range(activation))
        name = f"the code ({type(activation).__name__})"
        return self.of_units(HiddenUnits(name, codes, span=span, bias=bias), weights)

    def findings_in(self, recipe: Any) -> tuple[Finding, ...]:
        """A warning where sparsity does not fit the non-linearity."""
        return _unfit(type(self).__name__, recipe)


class L1Codes(AbstractSparsity):
    """sum_j abs(h_j): the prior of a Laplace density (Olshausen & Field 1996; Bengio 2012, 2.4)."""

    coefficient: float = _coefficient(0.1, 1e-4, 10.0)
    where: str = _where()

    def of_units(self, layer: HiddenUnits, weights: Float[Array, " rows"]) -> Scalar:
        values = layer.activations
        # The subgradient 0 at 0: a rectifier that is off must not be pushed.
        return _by_example(jnp.where(values == 0, 0.0, jnp.abs(values)), weights)


class StudentT(AbstractSparsity):
    """sum_j log(1 + h_j^2): the prior of a Student-t density; large values are hardly pushed (Ranzato et al. 2008)."""

    coefficient: float = _coefficient(0.1, 1e-4, 10.0)
    where: str = _where()

    def of_units(self, layer: HiddenUnits, weights: Float[Array, " rows"]) -> Scalar:
        return _by_example(jnp.log1p(layer.activations**2), weights)


class SquaredToTarget(AbstractSparsity):
    """sum_j (rho - mean_j)^2, mean_j being unit j's mean activation over the mini-batch (Lee, Ekanadham & Ng 2008)."""

    coefficient: float = _coefficient(10.0, 0.1, 1000.0)
    target: float = _target()
    where: str = _where()

    def of_units(self, layer: HiddenUnits, weights: Float[Array, " rows"]) -> Scalar:
        mean, share = _by_batch(layer.activations, weights)
        return share * jnp.sum((self.target - mean) ** 2)


class KlToTarget(AbstractSparsity):
    """sum_j rho log(rho / mean_j) + (1 - rho) log((1 - rho) / (1 - mean_j)), 0 where every mean is rho (Larochelle &
    Bengio 2008; Bengio 2012, 2.4, which leaves the constant out). mean_j is unit j's mean over the mini-batch.
    """

    coefficient: float = _coefficient(3.0, 0.01, 100.0)
    target: float = _target()
    where: str = _where()

    def of_units(self, layer: HiddenUnits, weights: Float[Array, " rows"]) -> Scalar:
        span = layer.span()
        if span is None or span[0] < 0.0 or span[1] > 1.0:
            known = "may lie anywhere" if span is None else f"lie in [{span[0]:.3g}, {span[1]:.3g}]"
            raise RequestError(
                f"KlToTarget takes activations for probabilities, but the units of {layer.name} {known}. "
                "Use Sigmoid() for them, or L1Codes or StudentT."
            )
        mean, share = _by_batch(layer.activations, weights)
        # Blended rather than clipped: where every unit is off the slope still points back towards the target.
        mean = _LEAST + (1.0 - 2.0 * _LEAST) * mean
        rho = jnp.asarray(self.target)
        each = rho * (jnp.log(rho) - jnp.log(mean)) + (1.0 - rho) * (jnp.log1p(-rho) - jnp.log1p(-mean))
        return share * jnp.sum(each)


class BiasPenalty(AbstractSparsity):
    """sum_j log(1 + exp b_j) over the layer's biases: pushes them down until units are off by default, and then no
    longer (the bias trick of Ranzato et al. 2007, bounded below by 0). Larger weights can compensate.
    """

    coefficient: float = _coefficient(0.1, 1e-3, 10.0)
    where: str = _where()

    def of_units(self, layer: HiddenUnits, weights: Float[Array, " rows"]) -> Scalar:
        if layer.bias is None:
            raise RequestError(f"BiasPenalty needs a layer with a `bias`; {layer.name} has none. Use L1Codes.")
        return jnp.sum(weights) / weights.shape[0] * jnp.sum(jax.nn.softplus(layer.bias))

    def findings_in(self, recipe: Any) -> tuple[Finding, ...]:
        """That weights can undo it, always; and where it does not fit the non-linearity."""
        undone = Finding(
            "note",
            "a penalty on hidden biases can be undone by weights that grow: look at the mean activation.",
            row="A4",
            next="prefer a penalty on the codes themselves, such as KlToTarget.",
            code="GW704",
        )
        return (undone, *_unfit("BiasPenalty", recipe))
