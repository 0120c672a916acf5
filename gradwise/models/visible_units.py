"""The kinds of visible units of a Boltzmann machine (row A2).

    BinaryVisible()                              0 or 1, or probabilities in [0, 1]
    GaussianVisible()                            real numbers: `gradwise.models.gaussian_visible`
    TruncatedExponentialVisible()                real numbers in [0, 1] that are no probabilities
    LabelledVisible(BinaryVisible(), classes=10) inputs of a kind, then one softmax unit per class

A kind defines the units' own part of the energy, how they are sampled and what their states are; the machine that they
belong to is `models.RbmNetwork`.
"""

import abc
import dataclasses
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key, Scalar

from ..runtime.errors import RequestError
from ..runtime.keys import coins, scramble
from ..specs.knobs import Spec, switch

_Units = Int[Array, "n some"] | None
_EDGE = 0.01  # a pixel that is never lit gets the log-odds of one lit in 1 of 100 examples, not minus infinity
_FLAT = 0.01  # below this activation a density on [0, 1] is as good as a line


class AbstractVisible(Spec):
    """A kind of visible units: their own part of the energy, and how they are sampled.

    `score` names what `pseudo_loss` is. Some kinds have parameters of their own, one number for each unit; `units` and
    `started` set them up. Others have none.
    """

    score: ClassVar[str] = "pseudo_likelihood"

    def units(self, width: int) -> "AbstractVisible":
        """So many units of this kind, with parameters where the kind has any."""
        return self

    def started(self, inputs: Float[Array, "n d"]) -> "AbstractVisible":
        """These units with what their parameters read off the training inputs."""
        return self

    @property
    def log_precisions(self) -> Any:
        """The kind's own parameters, if it has any: the logarithm of each unit's precision."""
        return None

    def seen(self, v: Float[Any, "... d"]) -> Float[Any, "... d"]:
        """What the hidden units see of visible states: they are weighed by W seen(v)."""
        return v

    def moved(self, down: Float[Array, "... d"]) -> Float[Array, "... d"]:
        """How far W'h moves the visible activations from their biases."""
        return down

    def precision_slopes(
        self, v: Float[Array, "n d"], bias: Float[Array, " d"], down: Float[Array, "n d"]
    ) -> Float[Array, "n d"] | None:
        """The derivative of each state's free energy in the log-precisions; `down` is W'h at the hidden means."""
        return None

    @abc.abstractmethod
    def energy(self, v: Float[Array, " d"], bias: Float[Array, " d"]) -> Scalar:
        """The energy of visible states without the hidden units."""

    @abc.abstractmethod
    def log_normaliser(self, activation: Float[Array, " d"], bias: Float[Array, " d"]) -> Scalar:
        """The log of the sum, or integral, over visible states of exp(-energy + u'seen(v)); activation = bias + u."""

    @abc.abstractmethod
    def mean(self, activation: Float[Array, "... d"]) -> Float[Array, "... d"]:
        """The means of the visible units given b + W'h."""

    @abc.abstractmethod
    def draw(self, activation: Float[Array, "... d"], *, key: Key[Array, ""]) -> Float[Array, "... d"]:
        """A sample of the visible units given b + W'h."""

    @abc.abstractmethod
    def bias(self, mean: Float[Array, " d"]) -> Float[Array, " d"]:
        """The biases under which, without weights, the units have this mean: log-odds for binary units (row D8)."""

    @abc.abstractmethod
    def pseudo_loss(
        self, network: Any, v: Float[Array, "n d"], activation: Float[Array, "n hidden"], units: _Units
    ) -> Float[Array, " n"]:
        """The score of `RbmNetwork.pseudo_loss`, over these visible units or all of them."""

    @abc.abstractmethod
    def states(self, count: int) -> int | None:
        """The number of states of this many units; None if they cannot be counted."""

    @abc.abstractmethod
    def state(self, number: Int[Array, ""], count: int) -> Float[Array, " d"]:
        """The state with this number, from 0."""

    @abc.abstractmethod
    def check_range(self, low: float, high: float) -> None:
        """Raise a one-line error if it cannot handle inputs of this range."""


def bernoulli(probability: Float[Array, "..."], key: Key[Array, ""]) -> Float[Array, "..."]:
    """Independent 0/1 draws with these probabilities, as floats."""
    flat = jnp.ravel(probability)
    return coins(key, flat, flat.shape[0]).reshape(probability.shape).astype(probability.dtype)


def uniform_numbers(key: Key[Array, ""], shape: tuple[int, ...], dtype: Any) -> Float[Array, "..."]:
    """Numbers of 24 bits in [0, 1), from the cheap stream that `coins` reads."""
    first, second = jr.key_data(key)
    bits = scramble(scramble(jnp.arange(math.prod(shape), dtype=jnp.uint32) + first) ^ second)
    return (bits >> 8).astype(dtype).reshape(shape) * 2.0**-24


def _log_ratio(upper: Float[Array, "..."], lower: Float[Array, "..."]) -> Float[Array, "..."]:
    """softplus(upper) - softplus(lower), with one logarithm instead of two."""
    ratio = (1.0 + jnp.exp(-jnp.abs(upper))) / (1.0 + jnp.exp(-jnp.abs(lower)))
    return jnp.maximum(upper, 0.0) - jnp.maximum(lower, 0.0) + jnp.log(ratio)


def _away_from_zero(activation: Float[Array, "..."]) -> Float[Array, "..."]:
    """The activation, or 1 where a series is taken instead: what is not chosen must be finite, its gradient too."""
    return jnp.where(jnp.abs(activation) < _FLAT, 1.0, activation)


class BinaryVisible(AbstractVisible):
    """Units that are 0 or 1; inputs in between are treated as probabilities.

    Given all others, unit i is 1 with log-odds b_i + sum over j of softplus(a_j + (1 - v_i) W_ji) -
    softplus(a_j - v_i W_ji), where a = c + Wv: its pseudo-likelihood is the cross-entropy of v_i under that.
    """

    def energy(self, v: Float[Array, " d"], bias: Float[Array, " d"]) -> Scalar:
        return -bias @ v

    def log_normaliser(self, activation: Float[Array, " d"], bias: Float[Array, " d"]) -> Scalar:
        return jnp.sum(jax.nn.softplus(activation))

    def mean(self, activation: Float[Array, "... d"]) -> Float[Array, "... d"]:
        return jax.nn.sigmoid(activation)

    def draw(self, activation: Float[Array, "... d"], *, key: Key[Array, ""]) -> Float[Array, "... d"]:
        return bernoulli(jax.nn.sigmoid(activation), key)

    def bias(self, mean: Float[Array, " d"]) -> Float[Array, " d"]:
        held = jnp.clip(mean, _EDGE, 1.0 - _EDGE)
        return jnp.log(held) - jnp.log1p(-held)

    def pseudo_loss(
        self, network: Any, v: Float[Array, "n d"], activation: Float[Array, "n hidden"], units: _Units
    ) -> Float[Array, " n"]:
        width = v.shape[1]  # a network of inputs and labels has more columns
        if units is None:
            weight, bias, here = network.weight[:, :width].T[None], network.visible_bias[:width], v
        else:
            weight, bias = jnp.moveaxis(network.weight[:, units], 0, -1), network.visible_bias[units]
            here = jnp.take_along_axis(v, units, axis=1)
        others = activation[:, None] - here[..., None] * weight
        odds = bias + jnp.sum(_log_ratio(others + weight, others), axis=-1)
        return jnp.mean(jax.nn.softplus(odds) - here * odds, axis=1) * width

    def states(self, count: int) -> int | None:
        return 2**count

    def state(self, number: Int[Array, ""], count: int) -> Float[Array, " d"]:
        return ((number >> jnp.arange(count, dtype=number.dtype)) & 1).astype(float)

    def check_range(self, low: float, high: float) -> None:
        if low < 0.0 or high > 1.0:
            raise RequestError(
                f"binary visible units take inputs in [0, 1], but the scaled ones lie in [{low:.4g}, {high:.4g}]. "
                "Scale with `--set scaler=UnitRange`, or use `GaussianVisible` units."
            )


class TruncatedExponentialVisible(AbstractVisible):
    """Real units in [0, 1], of density proportional to exp((b + W'h)_i v_i) there: uniform where that is 0.

    They suit inputs that spread over [0, 1], such as grey pixels of a busy background. Binary units take such an input
    for a probability: they expect a coin's variance of 1/4 where a uniform input has 1/12.

    As for Gaussian units, the score is that of score matching; on an interval the square of d log p/dv and its
    divergence are weighed by v (1 - v), which keeps terms at the borders out (Hyvarinen 2007).
    """

    score = "score_matching"

    def energy(self, v: Float[Array, " d"], bias: Float[Array, " d"]) -> Scalar:
        return -bias @ v

    def log_normaliser(self, activation: Float[Array, " d"], bias: Float[Array, " d"]) -> Scalar:
        # log((e^a - 1) / a); near 0, where that is 0/0, the first terms of its series
        size, held = jnp.abs(activation), _away_from_zero(activation)
        far = jnp.maximum(activation, 0.0) + jnp.log(-jnp.expm1(-jnp.abs(held)) / jnp.abs(held))
        return jnp.sum(jnp.where(size < _FLAT, activation / 2.0 + activation**2 / 24.0, far))

    def mean(self, activation: Float[Array, "... d"]) -> Float[Array, "... d"]:
        held = _away_from_zero(activation)
        far = -1.0 / jnp.expm1(-held) - 1.0 / held
        return jnp.where(jnp.abs(activation) < _FLAT, 0.5 + activation / 12.0 - activation**3 / 720.0, far)

    def draw(self, activation: Float[Array, "... d"], *, key: Key[Array, ""]) -> Float[Array, "... d"]:
        uniform = uniform_numbers(key, activation.shape, activation.dtype)
        size = jnp.abs(_away_from_zero(activation))
        fallen = -jnp.log1p(uniform * jnp.expm1(-size)) / size  # of a density that falls from 0 on
        return jnp.where(jnp.abs(activation) < _FLAT, uniform, jnp.where(activation > 0.0, 1.0 - fallen, fallen))

    def bias(self, mean: Float[Array, " d"]) -> Float[Array, " d"]:
        held = jnp.clip(mean, _EDGE, 1.0 - _EDGE)
        low, high = jnp.full_like(held, -2.0 / _EDGE), jnp.full_like(held, 2.0 / _EDGE)

        def halve(_: Any, ends: tuple[Any, Any]) -> tuple[Any, Any]:
            middle = (ends[0] + ends[1]) / 2.0
            over = self.mean(middle) > held
            return jnp.where(over, ends[0], middle), jnp.where(over, middle, ends[1])

        low, high = jax.lax.fori_loop(0, 60, halve, (low, high))
        return (low + high) / 2.0

    def pseudo_loss(
        self, network: Any, v: Float[Array, "n d"], activation: Float[Array, "n hidden"], units: _Units
    ) -> Float[Array, " n"]:
        code = jax.nn.sigmoid(activation)
        weight = network.weight[:, : v.shape[1]]
        slope = code @ weight + network.visible_bias[: v.shape[1]]
        bend = (code * (1.0 - code)) @ weight**2
        return jnp.sum(v * (1.0 - v) * (0.5 * slope**2 + bend) + (1.0 - 2.0 * v) * slope, axis=1)

    def states(self, count: int) -> int | None:
        return None

    def state(self, number: Int[Array, ""], count: int) -> Float[Array, " d"]:
        raise RequestError("the states of units in [0, 1] cannot be counted: enumerate the hidden units instead.")

    def check_range(self, low: float, high: float) -> None:
        if low < 0.0 or high > 1.0:
            raise RequestError(
                f"truncated exponential units take inputs in [0, 1], but the scaled ones lie in [{low:.4g}, "
                f"{high:.4g}]. Scale with `--set scaler=UnitRange`, or use `GaussianVisible` units."
            )


class LabelledVisible(AbstractVisible):
    """Inputs of one kind, then a softmax group: one unit per class, of which exactly one is 1 (row A2)."""

    inputs: AbstractVisible = BinaryVisible()
    classes: int = switch(2, allowed="[1, inf)", row="A2", about="the number of classes, the last of the visible units")

    def units(self, width: int) -> "LabelledVisible":
        return dataclasses.replace(self, inputs=self.inputs.units(width - self.classes))

    @property
    def log_precisions(self) -> Any:
        return self.inputs.log_precisions

    def seen(self, v: Float[Any, "... d"]) -> Float[Any, "... d"]:
        if self.inputs.log_precisions is None:
            return v
        x, y = self.parted(v)
        return jnp.concatenate([self.inputs.seen(x), y], axis=-1)

    def moved(self, down: Float[Array, "... d"]) -> Float[Array, "... d"]:
        if self.inputs.log_precisions is None:
            return down
        x, y = self.parted(down)
        return jnp.concatenate([self.inputs.moved(x), y], axis=-1)

    def precision_slopes(
        self, v: Float[Array, "n d"], bias: Float[Array, " d"], down: Float[Array, "n d"]
    ) -> Float[Array, "n x"] | None:
        return self.inputs.precision_slopes(*(self.parted(each)[0] for each in (v, bias, down)))

    def energy(self, v: Float[Array, " d"], bias: Float[Array, " d"]) -> Scalar:
        (x, y), (bias_x, bias_y) = self.parted(v), self.parted(bias)
        return self.inputs.energy(x, bias_x) - bias_y @ y

    def log_normaliser(self, activation: Float[Array, " d"], bias: Float[Array, " d"]) -> Scalar:
        (x, y), (bias_x, _) = self.parted(activation), self.parted(bias)
        return self.inputs.log_normaliser(x, bias_x) + jax.nn.logsumexp(y)

    def mean(self, activation: Float[Array, "... d"]) -> Float[Array, "... d"]:
        x, y = self.parted(activation)
        return jnp.concatenate([self.inputs.mean(x), jax.nn.softmax(y)], axis=-1)

    def draw(self, activation: Float[Array, "... d"], *, key: Key[Array, ""]) -> Float[Array, "... d"]:
        x, y = self.parted(activation)
        of_x, of_y = jr.split(key)
        label = jax.nn.one_hot(self.draw_label(y, key=of_y), self.classes, dtype=y.dtype)
        return jnp.concatenate([self.inputs.draw(x, key=of_x), label], axis=-1)

    def bias(self, mean: Float[Array, " d"]) -> Float[Array, " d"]:
        x, y = self.parted(mean)
        return jnp.concatenate([self.inputs.bias(x), jnp.log(jnp.clip(y, _EDGE / self.classes))])

    def pseudo_loss(
        self, network: Any, v: Float[Array, "n d"], activation: Float[Array, "n hidden"], units: _Units
    ) -> Float[Array, " n"]:
        x, y = self.parted(v)
        weight, bias = self.parted(network.weight)[1], self.parted(network.visible_bias)[1]
        others = activation - y @ weight.T
        scores = bias + jnp.sum(jax.nn.softplus(others[:, None] + weight.T), axis=-1)
        label = -jnp.sum(y * jax.nn.log_softmax(scores), axis=1)
        return self.inputs.pseudo_loss(network, x, activation, None if units is None else units % x.shape[1]) + label

    def states(self, count: int) -> int | None:
        inputs = self.inputs.states(count - self.classes)
        return None if inputs is None else inputs * self.classes

    def state(self, number: Int[Array, ""], count: int) -> Float[Array, " d"]:
        x = self.inputs.state(number // self.classes, count - self.classes)
        return jnp.concatenate([x, jax.nn.one_hot(number % self.classes, self.classes, dtype=x.dtype)])

    def check_range(self, low: float, high: float) -> None:
        self.inputs.check_range(low, high)

    def parted(self, v: Float[Array, "... d"]) -> tuple[Float[Array, "... x"], Float[Array, "... y"]]:
        """Inputs and labels of what belongs to all visible units."""
        return v[..., : -self.classes], v[..., -self.classes :]

    def draw_label(self, activation: Float[Array, "... k"], *, key: Key[Array, ""]) -> Int[Array, "..."]:
        """A class with probability softmax(activation), by where one uniform number falls."""
        below = jnp.cumsum(jax.nn.softmax(activation), axis=-1)[..., :-1]
        uniform = uniform_numbers(key, activation.shape[:-1], activation.dtype)
        return jnp.sum(uniform[..., None] >= below, axis=-1)
