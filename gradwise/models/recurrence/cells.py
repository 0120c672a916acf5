"""Cells of a recurrent network: what a layer's state h becomes at each step.

| cell         | update, with a = W x + b and c = U h                                                       |
|--------------|--------------------------------------------------------------------------------------------|
| `SimpleCell` | h' = tanh(a + c)                                                                           |
| `Gru`        | r = s(a_r + c_r), z = s(a_z + c_z), n = tanh(a_n + r c_n), h' = (1 - z) n + z h            |
| `Lstm`       | i, f, o = s(a + c), g = tanh(a_g + c_g), m' = f m + i g, h' = o tanh(m')                   |

s is the logistic function. A gate that is open lets the gradient pass many steps unchanged, where a simple cell
multiplies it by the same matrix, and by a slope below 1, at each (Hochreiter and Schmidhuber 1997; Cho et al. 2014).

With a `span` the units of a layer begin with memories of different lengths, from 2 steps to so many, evenly spaced in
their logarithm: a unit of span T keeps 1 - 1/T of its state at a step, so its gate's bias is log(T - 1) (Tallec and
Ollivier 2018, who draw the spans at random). Without one, a `Gru` keeps a half and an `Lstm` three quarters.
"""

import abc
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...specs.knobs import Spec, knob
from ...specs.priors import LogUniform, ZeroOr

State = tuple[Float[Array, " units"], ...]


class AbstractCell(Spec):
    """One step of a layer. The state is a tuple of vectors of which the first, h, is the layer's output."""

    gates: ClassVar[int]  # blocks of `units` rows in W, U and b
    vectors: ClassVar[int] = 1  # in the state

    @abc.abstractmethod
    def step(self, driven: Float[Array, "gates units"], held: Float[Array, "gates units"], state: State) -> State:
        """The next state, from W x + b, from U h, and from the present state."""

    def initial_bias(self, units: int) -> Float[Array, "gates units"]:
        """The biases before training."""
        return jnp.zeros((self.gates, units))

    def begun(self) -> "AbstractCell":
        """What is left of the cell once its biases are drawn: its equations, without knobs of the start."""
        return self


def _span() -> Any:
    return knob(
        0.0,
        allowed="[0, inf)",
        prior=ZeroOr(LogUniform(4.0, 1000.0)),
        row="A12",
        off=0.0,
        about="the steps that the unit of the longest memory remembers at first; 0: all units are alike",
    )


def span_bias(span: Any, units: int) -> Float[Array, " units"]:
    """The bias of a gate that keeps the state, for each unit, the shortest memory first."""
    longest = jnp.maximum(span, 2.0)
    return jnp.log(2.0 * (longest / 2.0) ** jnp.linspace(0.0, 1.0, units) - 1.0)


class SimpleCell(AbstractCell):
    """Hyperbolic tangent units without gates (Elman 1990)."""

    gates: ClassVar[int] = 1

    def step(self, driven: Float[Array, "1 units"], held: Float[Array, "1 units"], state: State) -> State:
        return (jnp.tanh(driven[0] + held[0]),)


class Gru(AbstractCell):
    """Gated recurrent units (Cho et al. 2014), the reset gate applied to U h, which is one product for all gates."""

    gates: ClassVar[int] = 3
    span: float = _span()

    def begun(self) -> "Gru":
        return Gru()

    def initial_bias(self, units: int) -> Float[Array, "3 units"]:
        return jnp.zeros((3, units)).at[1].set(jnp.where(self.span > 0, span_bias(self.span, units), 0.0))

    def step(self, driven: Float[Array, "3 units"], held: Float[Array, "3 units"], state: State) -> State:
        reset, keep = jax.nn.sigmoid(driven[:2] + held[:2])
        new = jnp.tanh(driven[2] + reset * held[2])
        return (new + keep * (state[0] - new),)


class Lstm(AbstractCell):
    """Long short-term memory (Hochreiter and Schmidhuber 1997) with a forget gate, whose bias begins at 1.

    So a cell begins by remembering (Gers, Schmidhuber and Cummins 2000; Jozefowicz, Zaremba and Sutskever 2015). With a
    span it lets in as much less as it keeps more.
    """

    gates: ClassVar[int] = 4
    vectors: ClassVar[int] = 2
    span: float = _span()

    def step(self, driven: Float[Array, "4 units"], held: Float[Array, "4 units"], state: State) -> State:
        total = driven + held
        enter, forget, leave = jax.nn.sigmoid(total[:3])
        memory = forget * state[1] + enter * jnp.tanh(total[3])
        return leave * jnp.tanh(memory), memory

    def begun(self) -> "Lstm":
        return Lstm()

    def initial_bias(self, units: int) -> Float[Array, "4 units"]:
        kept = span_bias(self.span, units)
        enter, forget = jnp.where(self.span > 0, -kept, 0.0), jnp.where(self.span > 0, kept, 1.0)
        return jnp.zeros((4, units)).at[0].set(enter).at[1].set(forget)
