"""Generative models made of learned layers: deep belief nets (row A2), and the start of a deep Boltzmann machine (A11).

    stack = pretrain([learner("rbm", 500)] * 3, dataset, key=key)
    net = deep_belief_net(stack)
    means, samples = net.sample(100, 1000, key=key)              # Gibbs in the top machine, then straight down

    layers = deep_boltzmann_layers((500, 500))
    stack = pretrain(layers, dataset, key=key)                   # the bottom machine sees its inputs twice
    recipe = replace(layers[0], model=deep_boltzmann_from(stack))
    record = fit(recipe, dataset, key=key)                       # then all layers together

Layers are learned by `gradwise.pretraining.stack`; what is here puts them together. Samples of other learners:
`gradwise.evaluation.generative.sampling`.
"""

import dataclasses
import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ..criteria.mean_field import MeanFieldDivergence
from ..models.deep_boltzmann import DeepBoltzmann, DeepBoltzmannNetwork
from ..models.restricted_boltzmann import RbmNetwork
from ..runtime.errors import RequestError
from ..specs.recipe import Recipe
from .layer_recipes import learner
from .stack import Stack


class DeepBeliefNet(eqx.Module):
    """Restricted Boltzmann machines, bottom up: the top one a model of its two layers, the others directed downwards.

    p(v, h_1, ..., h_L) = p(h_(L-1), h_L) p(h_(L-2) | h_(L-1)) ... p(v | h_1) (Hinton, Osindero and Teh 2006). The way
    up, used to encode, only approximates its posterior.
    """

    rbms: tuple[RbmNetwork, ...]

    def __check_init__(self) -> None:
        if not self.rbms:
            raise RequestError("a deep belief net needs at least one machine.")
        for level, (below, above) in enumerate(itertools.pairwise(self.rbms)):
            if below.hidden_bias.shape != above.visible_bias.shape:
                raise RequestError(
                    f"layer {level + 1} has {below.hidden_bias.shape[0]} hidden units and layer {level + 2} "
                    f"{above.visible_bias.shape[0]} visible ones: they do not fit. Give the layers bottom up."
                )

    def encode(self, inputs: Float[Array, "... visible"]) -> Float[Array, "... top"]:
        """The means of the top layer, on the way up, of scaled inputs."""
        for rbm in self.rbms:
            inputs = rbm.hidden_mean(inputs)
        return inputs

    def begin(self, count: int, *, key: Key[Array, ""]) -> Float[Array, "count penultimate"]:
        """States to begin the top machine's chains from: its visible units as their biases alone make them."""
        hidden = jnp.zeros((count, self.rbms[-1].hidden_bias.shape[0]))
        return self.rbms[-1].draw_visible(hidden, key=key)

    def descend(
        self, states: Float[Array, "count penultimate"], *, key: Key[Array, ""]
    ) -> tuple[Float[Array, "count visible"], Float[Array, "count visible"]]:
        """From states of the top machine's visible units down to inputs: their means, and a draw of them.

        Every layer on the way is drawn; only of the last one are there means to look at.
        """
        means = states
        for level, rbm in enumerate(reversed(self.rbms[:-1])):
            means = rbm.visible_mean(states)
            states = rbm.draw_visible(states, key=jr.fold_in(key, level))
        return means, states

    @eqx.filter_jit
    def sample(
        self, count: int, steps: int, *, key: Key[Array, ""], start: Float[Array, "count visible"] | None = None
    ) -> tuple[Float[Array, "count visible"], Float[Array, "count visible"]]:
        """Means and draws of the inputs, from `count` chains of so many Gibbs steps in the top machine.

        The chains begin at the top machine's biases, or at the codes of the inputs `start`.
        """
        if count < 1 or steps < 0:
            raise RequestError(f"`count` must be at least 1 and `steps` at least 0; got {count} and {steps}.")
        first, walk, down = jr.split(key, 3)
        top = self.rbms[-1]
        states = self.begin(count, key=first)
        if start is not None:
            codes = DeepBeliefNet(self.rbms[:-1]).encode(start) if len(self.rbms) > 1 else start
            states = jnp.broadcast_to(codes, states.shape)

        def step(number: Any, here: tuple[Array, Array]) -> tuple[Array, Array]:
            up, back = jr.split(jr.fold_in(walk, number))
            hidden = top.draw_hidden(here[1], key=up)
            return top.visible_mean(hidden), top.draw_visible(hidden, key=back)

        means, states = jax.lax.fori_loop(0, steps, step, (states, states))
        return (means, states) if len(self.rbms) == 1 else self.descend(states, key=down)


def deep_belief_net(stack: Stack) -> DeepBeliefNet:
    """The net of a stack of restricted Boltzmann machines."""
    for level, network in enumerate(stack.networks):
        if not isinstance(network, RbmNetwork):
            raise RequestError(
                f"layer {level + 1} is a {type(network).__name__}; a deep belief net is made of restricted Boltzmann "
                "machines. Pre-train with rbm layers."
            )
    return DeepBeliefNet(stack.networks)


def _copies(level: int, depth: int) -> tuple[int, int]:
    """How often the machine of a level has its visible and its hidden layer."""
    if depth == 1:
        return 1, 1
    return (2, 1) if level == 0 else (1, 2) if level == depth - 1 else (1, 1)


def deep_boltzmann_layers(
    widths: tuple[int, ...], criterion: MeanFieldDivergence = MeanFieldDivergence()
) -> list[Recipe]:
    """Recipes for the machines that a deep Boltzmann machine of these widths is put together from, bottom up.

    The bottom one has its visible layer twice, so that its hidden units get the input that they will later get from
    above as well; the top one its hidden layer twice, for the same reason. Those between are ordinary.
    """
    return [
        dataclasses.replace(
            learner("plain", width),
            model=DeepBoltzmann((width,), copies=_copies(level, len(widths))),
            criterion=criterion,
        )
        for level, width in enumerate(widths)
    ]


def deep_boltzmann_from(stack: Stack, sweeps: int = DeepBoltzmann().sweeps) -> DeepBoltzmannNetwork:
    """A deep Boltzmann machine from machines trained by the recipes of `deep_boltzmann_layers`.

    Weights of the bottom and of the top machine stay; those between are halved. A hidden layer's biases are the mean of
    the two that its two machines learned. So the log-odds of a hidden unit, given both neighbours, are the mean of
    what its two machines say: the geometric mean of two models (Salakhutdinov and Hinton 2009).
    """
    networks, depth = stack.networks, len(stack.networks)
    for level, network in enumerate(networks):
        asked = _copies(level, depth)
        found = network.copies if isinstance(network, DeepBoltzmannNetwork) else None
        if found != asked:
            raise RequestError(
                f"layer {level + 1} of {depth} must be a Boltzmann machine with {asked[0]} visible and {asked[1]} "
                f"hidden copies, not a {type(network).__name__}{'' if found is None else f' with {found}'}. "
                "Pre-train with `deep_boltzmann_layers`."
            )
    weights = tuple(
        network.weights[0] * (0.5 if depth > 1 and asked == (1, 1) else 1.0)
        for network, asked in ((network, _copies(level, depth)) for level, network in enumerate(networks))
    )
    between = tuple(0.5 * (below.biases[1] + above.biases[0]) for below, above in itertools.pairwise(networks))
    biases = (networks[0].biases[0], *between, networks[-1].biases[1])
    return DeepBoltzmannNetwork(weights, biases, (1,) * (depth + 1), sweeps)
