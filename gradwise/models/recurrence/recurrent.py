"""Recurrent networks of sequences: `Recurrent` is the spec, `RecurrentNetwork` the network it builds.

    Recurrent(units=(64,))                                      one layer of gated units, read from the left
    Recurrent(units=(64, 64), cell=Lstm(), directions="both", pooling=MeanState())

The network takes one example (steps, channels), NaN beyond the end of the sequence; `jax.vmap` makes the batch. The end
is read off the first channel, and NaN is replaced by 0 before any arithmetic, so that gradients are clean too. Beyond
the end a layer's state is held, so its last state is that of the last step, and a layer that reads backwards begins
there. So nothing depends on how much room a sequence has.

Steps are read in chunks of `CHUNK`. One that lies beyond the end of every example of the batch is skipped at run time:
under `jax.vmap` the longest length becomes one number, and so `lax.cond` stays a real branch, forward and backward, for
the batches of a whole population too. A chunk's inputs enter by one matrix product.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from ...runtime import keys
from ...runtime.errors import RequestError
from ...specs.contracts import AbstractModel
from ...specs.knobs import is_off, switch
from ...specs.networks import Network
from ...specs.priors import Choice
from ...specs.schedules import AbstractSchedule, Constant, Noise, dropout_knob
from ..activations import Identity
from ..initial_weights import AbstractInitial, Glorot, normal
from ..mlp import Linear, check_widths, dropped, layer_widths
from .cells import AbstractCell, Gru, State
from .pooling import AbstractStatePooling, LastState

CHUNK = 16

States = Float[Array, "steps units"]
Mask = Bool[Array, " steps"]


@jax.custom_batching.custom_vmap
def longest_in_batch(length: Int[Array, ""]) -> Int[Array, ""]:
    """The largest length of all examples that are worked on together; the example's own where it is alone."""
    return length


@longest_in_batch.def_vmap
def _largest(size: int, batched: Any, length: Int[Array, " n"]) -> tuple[Int[Array, ""], bool]:
    """One number for the whole batch, and again for all batches of a population: a branch on it stays a branch."""
    return longest_in_batch(jnp.max(length)), False


class GateWeights(eqx.Module):
    """W and U, the blocks of all gates one below the other."""

    input: Float[Any, "rows channels"]
    recurrent: Float[Any, "rows units"]


class OneDirection(eqx.Module):
    """A layer that reads a sequence from one end to the other."""

    weights: GateWeights
    bias: Float[Any, "gates units"]
    cell: AbstractCell = eqx.field(static=True)
    backward: bool = eqx.field(static=True)

    def _chunk(self, state: State, inputs: Float[Array, "chunk channels"], mask: Mask) -> tuple[State, States]:
        """The state after a few steps, and h after each of them."""
        shape = self.bias.shape
        driven = (inputs @ self.weights.input.T).reshape(-1, *shape) + self.bias

        def step(state: State, given: tuple[Array, Array]) -> tuple[State, Array]:
            new = self.cell.step(given[0], (self.weights.recurrent @ state[0]).reshape(shape), state)
            state = tuple(jnp.where(given[1], after, before) for after, before in zip(new, state, strict=True))
            return state, state[0]

        return jax.lax.scan(step, state, (driven, mask), reverse=self.backward)

    def __call__(
        self, inputs: Float[Array, "steps channels"], mask: Mask, longest: Int[Array, ""]
    ) -> tuple[States, Float[Array, " units"]]:
        """h at each step, and the last one. The number of steps is a multiple of `CHUNK`."""
        units = self.bias.shape[1]
        count = inputs.shape[0] // CHUNK
        zeros: State = (jnp.zeros(units, inputs.dtype),) * self.cell.vectors

        def read(state: State, given: tuple[Array, Array, Array]) -> tuple[State, States]:
            number, steps, present = given
            return jax.lax.cond(
                number * CHUNK < longest,
                lambda now: self._chunk(now, steps, present),
                lambda now: (now, jnp.broadcast_to(now[0], (CHUNK, units))),
                state,
            )

        chunks = (jnp.arange(count), inputs.reshape(count, CHUNK, -1), mask.reshape(count, CHUNK))
        state, states = jax.lax.scan(read, zeros, chunks, reverse=self.backward)
        return states.reshape(-1, units), state[0]


class RecurrentLayer(eqx.Module):
    """One direction, or both side by side."""

    directions: tuple[OneDirection, ...]

    def __call__(
        self, inputs: Float[Array, "steps channels"], mask: Mask, longest: Int[Array, ""]
    ) -> tuple[States, Float[Array, " units"]]:
        found = [one(inputs, mask, longest) for one in self.directions]
        return jnp.concatenate([states for states, _ in found], -1), jnp.concatenate([last for _, last in found])


class RecurrentNetwork(Network):
    """Recurrent layers, pooling over the steps, then a linear output. Called without a key it is deterministic."""

    layers: tuple[RecurrentLayer, ...]
    pooling: Any
    output: Linear
    dropout: Noise | None

    def features(
        self, x: Float[Array, "steps channels"], *, key: Key[Array, ""] | None = None
    ) -> Float[Array, " width"]:
        """One vector for the whole sequence."""
        mask = ~jnp.isnan(x[:, 0])
        room = -x.shape[0] % CHUNK
        h = jnp.pad(jnp.where(jnp.isnan(x), 0.0, x), ((0, room), (0, 0)))
        mask = jnp.pad(mask, (0, room))
        longest = longest_in_batch(jnp.sum(mask))
        last = jnp.zeros(0)
        for number, layer in enumerate(self.layers):
            if number:  # one mask for all steps: a unit is there for the whole sequence or not at all
                h = h * self._kept(h.shape[1], key, number)
            h, last = layer(h, mask, longest)
        pooled: Array = self.pooling(h, mask, last)
        return pooled * self._kept(pooled.shape[0], key, 0)

    def _kept(self, width: int, key: Key[Array, ""] | None, number: int) -> Any:
        drawn = None if key is None else jr.fold_in(key, number)
        return 1.0 if drawn is None or self.dropout is None else dropped(jnp.ones(width), self.dropout, drawn)

    def __call__(
        self, x: Float[Array, "steps channels"], *, key: Key[Array, ""] | None = None
    ) -> Float[Array, " outputs"]:
        return self.output(self.features(x, key=key))


def orthogonal(units: int, key: Key[Array, ""]) -> Float[Array, "units units"]:
    """A random rotation: a state that it multiplies keeps its length (Saxe, McClelland and Ganguli 2014)."""
    q, r = jnp.linalg.qr(normal((units, units), key))
    return q * jnp.where(jnp.diagonal(r) < 0, -1.0, 1.0)


class Recurrent(AbstractModel):
    """A recurrent network of sequences of any length (row A12).

    `dropout` is the probability of dropping a unit between layers and before the output, for a whole sequence.
    Recurrent weights begin as rotations, one for each gate.
    """

    cell: AbstractCell = Gru()
    units: tuple[int, ...] = layer_widths(
        (64,), *((32,), (64,), (128,), (256,), (64, 64), (128, 128)), row="A12", about="units of each recurrent layer"
    )
    directions: str = switch(
        "forward",
        allowed=("forward", "both"),
        prior=Choice(("forward", "both")),
        row="A12",
        about='"both": each layer also reads from the end to the beginning; the outputs lie side by side',
    )
    pooling: AbstractStatePooling = LastState()
    initial: AbstractInitial = Glorot()
    output_initial: AbstractInitial = Glorot()
    dropout: float = dropout_knob(0.1, "a unit")
    dropout_schedule: AbstractSchedule = Constant()

    def __check_init__(self) -> None:
        check_widths("Recurrent.units", self.units, least=1)

    def _direction(self, channels: int, units: int, backward: bool, key: Key[Array, ""]) -> OneDirection:
        gates = range(self.cell.gates)
        draws = [jr.fold_in(key, gate) for gate in gates]
        inputs = [self.initial.draw(units, channels, 1.0, key=keys.named(draw, "input")) for draw in draws]
        held = [orthogonal(units, keys.named(draw, "recurrent")) for draw in draws]
        weights = GateWeights(jnp.concatenate(inputs), jnp.concatenate(held))
        return OneDirection(weights, self.cell.initial_bias(units), self.cell.begun(), backward)

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> RecurrentNetwork:
        if len(inputs) != 2:
            raise RequestError(
                f"`Recurrent` needs sequences (steps, channels); got examples of shape {inputs}. Pass a list of arrays "
                "or `Sequences`, or use `Mlp`."
            )
        width, layers = inputs[1], []
        sides = (False, True) if self.directions == "both" else (False,)
        for number, units in enumerate(self.units):
            draw = jr.fold_in(key, number)
            layers.append(RecurrentLayer(tuple(self._direction(width, units, b, jr.fold_in(draw, b)) for b in sides)))
            width = units * len(sides)
        weight = self.output_initial.draw(outputs, width, 1.0, key=keys.named(key, "output"))
        noise = None if is_off(self.dropout) else Noise(jnp.asarray(self.dropout), self.dropout_schedule)
        pooling = self.pooling.build(width, key=keys.named(key, "pooling"))
        return RecurrentNetwork(tuple(layers), pooling, Linear(weight, jnp.zeros(outputs), Identity()), noise)
