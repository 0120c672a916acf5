"""Deep Boltzmann machines (row A11): layers of binary units, each connected to the one above and the one below.

    DeepBoltzmann(widths=(500, 500))              two hidden layers
    DeepBoltzmann(widths=(500,), copies=(2, 1))   the bottom machine of its pre-training, which sees every input twice

The energy of a state (v = h_0, h_1, ..., h_L) is the sum of -b_l'h_l and of -h_l'W_l h_(l-1). Given all odd layers the
even ones are independent, and vice versa, so a Gibbs step draws two halves, and mean field updates two halves.
The posterior of the hidden layers has no closed form; mean field gives a factorial approximation, and with it a lower
bound on the log-likelihood.

Called on an example, the network returns the mean-field means of its top layer. As layers of a perceptron it is its own
bottom-up pass, in which doubled input replaces the missing input from above, as at the start of mean field.
Training: `gradwise.criteria.mean_field`. Pre-training: `gradwise.pretraining.belief_nets`.
"""

import itertools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ..runtime.errors import RequestError
from ..specs.contracts import AbstractModel
from ..specs.knobs import switch
from ..specs.networks import Network
from .activations import Sigmoid
from .initial_weights import AbstractInitial, GaussianWeights
from .mlp import Layer, as_widths, check_widths, layer_widths
from .visible_units import BinaryVisible, bernoulli

States = tuple[Float[Any, "..."], ...]


class DeepBoltzmannNetwork(Network):
    """Weights (above by below) between neighbouring layers, and biases of all layers, the visible one first.

    Methods take one state or many.

    `copies` is the number of replicas of each layer, which share weights; a layer's state is
    the average of its replicas. All are 1 except while a stack is pre-trained.
    """

    offers = ("mean_field",)
    weights: tuple[Float[Any, "_ _"], ...]
    biases: tuple[Float[Any, " _"], ...]
    copies: tuple[int, ...] = eqx.field(static=True)
    sweeps: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, "..."], *, key: Key[Array, ""] | None = None) -> Float[Array, " top"]:
        return self.mean_field(jnp.ravel(x), self.sweeps)[-1]

    def activation(self, layer: int, states: States) -> Float[Array, "... units"]:
        """The log-odds of the units of a layer, given its neighbours."""
        total = self.biases[layer]
        if layer > 0:
            total = total + self.copies[layer - 1] * (states[layer - 1] @ self.weights[layer - 1].T)
        if layer < len(self.weights):
            total = total + self.copies[layer + 1] * (states[layer + 1] @ self.weights[layer])
        return total

    def renewed(self, first: int, states: States) -> States:
        """The states with every second layer, from `first` on, at its mean given the others."""
        others = {layer: jax.nn.sigmoid(self.activation(layer, states)) for layer in range(first, len(states), 2)}
        return tuple(others.get(layer, state) for layer, state in enumerate(states))

    def energy(self, states: States) -> Float[Array, "..."]:
        """E(v, h_1, ..., h_L). It is linear in each layer, so at the means of independent units it is its own mean."""
        total = -self.copies[0] * (states[0] @ self.biases[0])
        for layer, weight in enumerate(self.weights, start=1):
            joined = self.copies[layer - 1] * (states[layer - 1] @ weight.T) + self.biases[layer]
            total = total - self.copies[layer] * jnp.sum(states[layer] * joined, axis=-1)
        return total

    def bottom_up(self, v: Float[Array, "... visible"]) -> States:
        """The inputs and the means of all layers, each from the one below, doubled in place of the input from above."""
        states = [v]
        for layer in self.hidden_layers:
            states.append(jax.nn.sigmoid(states[-1] @ layer.weight.T + layer.bias))
        return tuple(states)

    def mean_field(self, v: Float[Array, "... visible"], sweeps: int) -> States:
        """The inputs and the means of the factorial posterior after so many sweeps over odd, then even layers.

        Each half of a sweep is the best choice given the other half, so the bound never falls.
        """
        states = self.bottom_up(v)
        if len(self.weights) == 1:
            return states  # one layer: the posterior is factorial, and this is it
        found: States = jax.lax.fori_loop(0, sweeps, lambda _, here: self.renewed(2, self.renewed(1, here)), states)
        return found

    def bound(self, states: States) -> Float[Array, "..."]:
        """-E + entropy at mean-field states: at most the log of the sum over h of exp(-E(v, h)), log p(v) + log Z."""
        total = -self.energy(states)
        for count, mean in zip(self.copies[1:], states[1:], strict=True):
            entropy = jax.scipy.special.entr(mean) + jax.scipy.special.entr(1.0 - mean)
            total = total + count * jnp.sum(entropy, axis=-1)
        return total

    def draw(self, layer: int, states: States, *, key: Key[Array, ""]) -> Float[Array, "... units"]:
        """A sample of a layer given its neighbours: the average of its replicas."""
        mean = jax.nn.sigmoid(self.activation(layer, states))
        drawn = [bernoulli(mean, jr.fold_in(key, replica)) for replica in range(self.copies[layer])]
        return sum(drawn[1:], start=drawn[0]) / len(drawn)

    def begin(self, v: Float[Array, "... visible"], *, key: Key[Array, ""]) -> States:
        """A state to begin a chain from: these inputs, and hidden units drawn on the way up."""
        means = self.bottom_up(v)[1:]
        return (v, *(bernoulli(mean, jr.fold_in(key, layer)) for layer, mean in enumerate(means)))

    def gibbs(self, states: States, *, key: Key[Array, ""]) -> States:
        """One step: all odd layers given the even ones, then all even layers, the visible one among them."""
        for first in (1, 0):
            new = {
                layer: self.draw(layer, states, key=jr.fold_in(key, layer)) for layer in range(first, len(states), 2)
            }
            states = tuple(new.get(layer, state) for layer, state in enumerate(states))
        return states

    def visible_mean(self, states: States) -> Float[Array, "... visible"]:
        """The means of the visible units given the first hidden layer of a state."""
        return jax.nn.sigmoid(self.activation(0, states))

    @property
    def hidden_layers(self) -> tuple[Layer, ...]:
        """The bottom-up pass as layers of a perceptron: input doubled in all layers but the top one."""
        top = len(self.weights) - 1
        return tuple(
            Layer((1 if below == top else 2) * self.copies[below] * weight, bias, None, Sigmoid(), None, residual=False)
            for below, (weight, bias) in enumerate(zip(self.weights, self.biases[1:], strict=True))
        )


class DeepBoltzmann(AbstractModel):
    """A deep Boltzmann machine with binary units (Salakhutdinov and Hinton 2009).

    Small Gaussian weights, visible biases at the inputs' own log-odds (row D8). Inputs between 0 and 1 are treated as
    probabilities.
    """

    widths: tuple[int, ...] = layer_widths(
        (256, 256),
        *((128, 128), (256, 256), (500, 500), (500, 1000)),
        row="A11",
        about="hidden units of each layer, bottom up",
    )
    copies: tuple[int, ...] = switch(
        (), row="A11", about="replicas of each layer while a stack is pre-trained, visible one first", convert=as_widths
    )
    sweeps: int = switch(10, allowed="[0, inf)", row="A11", about="mean-field sweeps when computing features")
    initial: AbstractInitial = GaussianWeights(0.01)

    def __check_init__(self) -> None:
        check_widths("DeepBoltzmann.widths", self.widths)
        if self.copies != ():
            check_widths("DeepBoltzmann.copies", self.copies)
        if len(self.copies) not in (0, len(self.widths) + 1):
            raise RequestError(
                f"`DeepBoltzmann.copies` must have {len(self.widths) + 1} numbers, the visible layer's first; "
                f"got {self.copies!r}. Leave it out for a machine without replicas."
            )

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Key[Array, ""]) -> DeepBoltzmannNetwork:
        sizes = (math.prod(inputs), *self.widths)
        weights = tuple(
            self.initial.draw(above, below, 1.0, key=jr.fold_in(key, number))
            for number, (below, above) in enumerate(itertools.pairwise(sizes))
        )
        copies = self.copies or (1,) * len(sizes)
        return DeepBoltzmannNetwork(weights, tuple(jnp.zeros(size) for size in sizes), copies, self.sweeps)

    def started(self, network: DeepBoltzmannNetwork, inputs: Float[Array, "n ..."]) -> DeepBoltzmannNetwork:
        mean = jnp.mean(inputs.reshape(inputs.shape[0], -1), axis=0)
        return eqx.tree_at(lambda one: one.biases[0], network, BinaryVisible().bias(mean))
