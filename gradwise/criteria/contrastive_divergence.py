"""How a Boltzmann machine learns (row A2): examples become more likely, the machine's own samples less likely.

    ContrastiveDivergence(steps=1)             chains start at the examples (Hinton 2002)
    PersistentDivergence(chains=100)           chains continue from update to update (Tieleman 2008)
    FastPersistentDivergence(chains=100)       and fast weights make them mix (Tieleman and Hinton 2009)
    JointDivergence(PersistentDivergence())    inputs and classes together, for `LabelRbm`

The gradient of -log p(v) is dF(v) - E[dF(v')] with v' drawn from the machine: a difference of statistics <h v'>, which
is what is computed here. The scalar returned, mean F(v) - mean F(v'), has this estimate as its gradient; descending it
trains the machine, but its value means nothing. So the score is the pseudo-likelihood, or that of score matching where
visible units are real numbers (row E20). For momentum, use an optimiser such as `HeavyBall`.
"""

import abc
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Key, PyTree, Scalar

from ..runtime.errors import RequestError
from ..runtime.keys import coins
from ..specs.contracts import AbstractCriterion, Batch, ValueAndTerms
from ..specs.dataset import Task
from ..specs.knobs import is_off, knob, switch
from ..specs.networks import require_methods
from ..specs.priors import Choice, LogUniform, ZeroOr
from .boltzmann_gradient import (
    Parameters,
    Phases,
    boltzmann_parameters,
    enhanced_gradient,
    phase_gradient,
    with_gradient,
    with_parameters,
    with_precisions,
)
from .losses import AbstractLoss, SoftmaxLoss
from .penalties import L2, AbstractPenalty

_STEPS: dict[str, Any] = {
    "allowed": "[1, inf)",
    "prior": Choice((1, 5, 10)),
    "row": "A2",
    "kind": "optimiser",
    "about": "steps of Gibbs sampling per update",
}
_CHAINS: dict[str, Any] = {
    "allowed": "[1, inf)",
    "prior": Choice((20, 100)),
    "row": "A2",
    "kind": "optimiser",
    "about": "samples of the machine that are kept from update to update",
}
_ENHANCED: dict[str, Any] = {
    "allowed": (False, True),
    "prior": Choice((False, True)),
    "row": "A2",
    "kind": "optimiser",
    "about": "the gradient that does not change if 0 and 1 swap meanings (Cho et al. 2011)",
}


def _held(network: PyTree) -> PyTree:
    """The network, of which nothing is differentiated."""
    return jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf) if isinstance(leaf, jax.Array) else leaf, network)


def draw_hidden(activation: Float[Array, "n hidden"], key: Key[Array, ""]) -> Float[Array, "n hidden"]:
    """Hidden states given their activations."""
    chances = jnp.ravel(jax.nn.sigmoid(activation))
    return coins(key, chances, chances.shape[0]).reshape(activation.shape).astype(activation.dtype)


def gibbs_steps(
    network: PyTree, hidden: Float[Array, "n hidden"], steps: int, key: Key[Array, ""]
) -> Float[Array, "n d"]:
    """The visible states that `steps` turns of Gibbs sampling lead to from hidden ones."""
    last, rest = jr.split(key)

    def turn(hidden: Array, key: Array) -> tuple[Array, None]:
        down, up = jr.split(key)
        v = network.draw_visible(hidden, key=down)
        return draw_hidden(network.hidden_activation(v), up), None

    if steps > 1:
        hidden, _ = jax.lax.scan(turn, hidden, jr.split(rest, steps - 1))
    return network.draw_visible(hidden, key=last)


def _enhanced(plain: Parameters, v: Array, weights: Array, phases: Phases) -> Parameters:
    def mean(here: Array, there: Array) -> Array:
        share = jnp.maximum(jnp.sum(weights), jnp.finfo(weights.dtype).tiny)  # a batch may be empty
        return 0.5 * (weights @ here + phases.weights @ there) / share

    hidden = mean(jax.nn.sigmoid(phases.activation), jax.nn.sigmoid(phases.own_activation))
    return enhanced_gradient(plain, mean(v, phases.own), hidden)


class AbstractDivergence(AbstractCriterion):
    """Divergences differ in where the machine's samples come from, and in what they remember."""

    learns_from = "inputs"
    enhanced: bool
    penalties: tuple[AbstractPenalty, ...]

    @abc.abstractmethod
    def phases(
        self, network: PyTree, v: Float[Array, "n visible"], weights: Float[Array, " n"], memory: PyTree, key: Array
    ) -> tuple[Phases, PyTree]:
        """Both phases for these examples, whose weights sum to their share of the batch, and the memory after them."""

    def remembered(self, memory: PyTree, gradient: Parameters) -> PyTree:
        """The memory, once the plain gradient of this update is known."""
        return memory

    def begun(self, network: PyTree, v: Float[Array, "n visible"], *, key: Key[Array, ""]) -> PyTree:
        """The memory before the first update, for a machine and examples of its visible units."""
        return None

    def estimate(
        self, network: PyTree, v: Float[Array, "B visible"], batch: Batch, *, key: Key[Array, ""]
    ) -> tuple[Scalar, Phases, PyTree]:
        """The scalar whose gradient is the estimate, for these visible states in place of the batch's inputs."""
        held = _held(network)
        weights = batch.weights / batch.weights.shape[0]
        phases, memory = self.phases(held, v, weights, batch.memory, key)
        plain = phase_gradient(v, weights, phases)
        gradient = with_precisions(held, plain, v, weights, phases)
        memory = self.remembered(memory, gradient)
        if self.enhanced:
            gradient = with_precisions(held, _enhanced(plain, v, weights, phases), v, weights, phases)
        # An optimiser that does not look at the value does not pay for it: what is not used is not computed.
        energy = jax.vmap(held.free_energy)
        value = weights @ energy(v) - phases.weights @ energy(phases.own)
        return with_gradient(boltzmann_parameters(network), value, gradient), phases, memory

    def penalty(self, model: PyTree, batch: Batch) -> Scalar:
        """(1/B)(B'/T) sum of lambda Omega."""
        total = jnp.zeros(())
        share = jnp.sum(batch.present) / (batch.weights.shape[0] * batch.total)
        for penalty in self.penalties:
            if not is_off(penalty.coefficient):
                total += share * penalty.coefficient * penalty(model)
        return total

    def __call__(self, model: PyTree, batch: Batch, *, key: Key[Array, ""]) -> ValueAndTerms:
        v = batch.inputs.reshape(batch.inputs.shape[0], -1)
        total, phases, memory = self.estimate(model, v, batch, key=key)
        turn = jr.key_data(key)[-1]  # one unit an example: enough for a curve
        losses = _held(model).pseudo_loss(v, units=1, turn=turn, activation=phases.activation)
        return total + self.penalty(model, batch), {"loss": losses, "score": losses, "memory": memory}

    def begin(self, model: PyTree, inputs: Float[Array, "n ..."], *, key: Key[Array, ""]) -> PyTree:
        return self.begun(model, inputs.reshape(inputs.shape[0], -1), key=key)

    def examples(
        self, model: PyTree, inputs: Float[Array, "n ..."], targets: Array
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        told = model.pseudo_loss(inputs.reshape(inputs.shape[0], -1))
        return told, told

    def measured(self, model: PyTree) -> tuple[str, ...]:
        return (model.visible.score, "reconstruction_error")

    def measures(self, model: PyTree, inputs: Float[Array, "n ..."]) -> dict[str, Float[Array, " n"]]:
        """-log of the pseudo-likelihood, of real units the score of score matching; and the squared error of going up
        and down once by means.
        """
        v = inputs.reshape(inputs.shape[0], -1)
        errors = jnp.sum((model.visible_mean(model.hidden_mean(v)) - v) ** 2, axis=1)
        return dict(zip(self.measured(model), (model.pseudo_loss(v), errors), strict=True))

    def decode(self, model: PyTree, code: Float[Array, " k"]) -> Float[Array, " d"]:
        return model.visible_mean(code)

    def check_network(self, network: PyTree) -> None:
        require_methods(type(self).__name__, network, ("free_energy", "draw_visible"), "Rbm")


class ContrastiveDivergence(AbstractDivergence):
    """CD-k (Hinton 2002): the machine's samples are k steps of Gibbs sampling away from the examples.

    Biased, less so with more steps; it lowers -log p(v) without ever visiting states far from the examples.
    """

    steps: int = switch(1, **_STEPS)
    enhanced: bool = switch(False, **_ENHANCED)
    penalties: tuple[AbstractPenalty, ...] = (L2(where="*weight"),)

    def phases(
        self, network: PyTree, v: Float[Array, "n visible"], weights: Float[Array, " n"], memory: PyTree, key: Array
    ) -> tuple[Phases, PyTree]:
        up, rest = jr.split(key)
        activation = network.hidden_activation(v)
        own = gibbs_steps(network, draw_hidden(activation, up), self.steps, rest)
        return Phases(activation, own, network.hidden_activation(own), weights), None


def _begun(network: PyTree, v: Float[Array, "n visible"], chains: int, key: Key[Array, ""]) -> Array:
    """Hidden states of examples drawn at random: chains begin where there are examples."""
    which, up = jr.split(key)
    rows = v[jr.randint(which, (chains,), 0, v.shape[0])]
    return draw_hidden(network.hidden_activation(rows), up)


def _evenly(weights: Float[Array, " n"], chains: int) -> Float[Array, " chains"]:
    return jnp.broadcast_to(jnp.sum(weights) / chains, (chains,))


class PersistentDivergence(AbstractDivergence):
    """PCD (Tieleman 2008): the machine's samples are Markov chains that continue while it learns.

    Only the hidden states of the chains are stored, so that an update needs no more products than the statistics.
    """

    steps: int = switch(1, **_STEPS)
    chains: int = switch(100, **_CHAINS)
    enhanced: bool = switch(False, **_ENHANCED)
    penalties: tuple[AbstractPenalty, ...] = (L2(where="*weight"),)

    def phases(
        self, network: PyTree, v: Float[Array, "n visible"], weights: Float[Array, " n"], memory: PyTree, key: Array
    ) -> tuple[Phases, PyTree]:
        up, rest = jr.split(key)
        own = gibbs_steps(network, memory, self.steps, rest)
        both = network.hidden_activation(jnp.concatenate([v, own]))
        activation, own_activation = both[: v.shape[0]], both[v.shape[0] :]
        phases = Phases(activation, own, own_activation, _evenly(weights, self.chains))
        return phases, draw_hidden(own_activation, up)

    def begun(self, network: PyTree, v: Float[Array, "n visible"], *, key: Key[Array, ""]) -> PyTree:
        return _begun(network, v, self.chains, key)


class FastPersistentDivergence(AbstractDivergence):
    """FPCD (Tieleman and Hinton 2009): chains run under W + W_fast, and W_fast <- decay W_fast - fast_rate g.

    The fast weights push chains away from where they have just been, at a constant rate, so that they mix even when
    the machine itself learns slowly. They include biases and start at 0.
    """

    steps: int = switch(1, **_STEPS)
    chains: int = switch(100, **_CHAINS)
    fast_rate: float = knob(
        0.01,
        allowed="[0, inf)",
        prior=LogUniform(1e-3, 0.1),
        row="A2",
        about="the learning rate of the fast weights, which does not decay",
    )
    decay: float = knob(
        0.95, allowed="[0, 1)", prior=Choice((0.95,)), row="A2", about="share of the fast weights kept per update"
    )
    enhanced: bool = switch(False, **_ENHANCED)
    penalties: tuple[AbstractPenalty, ...] = (L2(where="*weight"),)

    def phases(
        self, network: PyTree, v: Float[Array, "n visible"], weights: Float[Array, " n"], memory: PyTree, key: Array
    ) -> tuple[Phases, PyTree]:
        up, rest = jr.split(key)
        hidden, fast = memory
        driven = with_parameters(network, optax.tree.add(boltzmann_parameters(network), fast))
        own = gibbs_steps(driven, hidden, self.steps, rest)
        own_activation = driven.hidden_activation(own)
        phases = Phases(network.hidden_activation(v), own, own_activation, _evenly(weights, self.chains))
        return phases, (draw_hidden(own_activation, up), fast)

    def remembered(self, memory: PyTree, gradient: Parameters) -> PyTree:
        hidden, fast = memory
        renewed = jax.tree.map(
            lambda old, slope: (self.decay * old - self.fast_rate * slope).astype(old.dtype), fast, gradient
        )
        return hidden, renewed._replace(log_precision=fast.log_precision)  # precisions have no fast part

    def begun(self, network: PyTree, v: Float[Array, "n visible"], *, key: Key[Array, ""]) -> PyTree:
        return _begun(network, v, self.chains, key), optax.tree.zeros_like(boltzmann_parameters(network))


class JointDivergence(AbstractCriterion):
    """Learns p(x, y), inputs and class together, by any divergence; with `discriminative`, also p(y | x).

    The criterion is the divergence plus `discriminative` times -log p(y | x), which for a `LabelRbm` has a closed form
    (the hybrid of Larochelle and Bengio 2008). Its score is the classification error.
    """

    divergence: AbstractDivergence = ContrastiveDivergence()
    discriminative: float = knob(
        0.0,
        allowed="[0, inf)",
        prior=ZeroOr(LogUniform(0.1, 100.0)),
        row="A2",
        kind="model",
        off=0.0,
        about="the weight of -log p(class | inputs) relative to the divergence",
    )
    loss: AbstractLoss = SoftmaxLoss()

    def __call__(self, model: PyTree, batch: Batch, *, key: Key[Array, ""]) -> ValueAndTerms:
        joined = model.joined(batch.inputs, batch.targets)
        total, _, memory = self.divergence.estimate(model.joint, joined, batch, key=key)
        outputs = jax.vmap(model)(batch.inputs)
        losses = jax.vmap(self.loss.loss)(outputs, batch.targets)
        if not is_off(self.discriminative):
            total += self.discriminative * jnp.sum(batch.weights * losses) / batch.weights.shape[0]
        scores = jax.vmap(self.loss.score)(outputs, batch.targets)
        terms = {"loss": losses, "score": scores, "memory": memory}
        return total + self.divergence.penalty(model, batch), terms

    def check_network(self, network: PyTree) -> None:
        require_methods("JointDivergence", network, ("joined",), "LabelRbm")

    def begin(self, model: PyTree, inputs: Float[Array, "n ..."], *, key: Key[Array, ""]) -> PyTree:
        unknown = model.joined(inputs, jnp.full(inputs.shape[0], -1))
        return self.divergence.begun(model.joint, unknown, key=key)

    def examples(
        self, model: PyTree, inputs: Float[Array, "n ..."], targets: Array
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        outputs = jax.vmap(model)(inputs)
        return jax.vmap(self.loss.score)(outputs, targets), jax.vmap(self.loss.loss)(outputs, targets)

    def link(self, output: Float[Array, " k"]) -> Float[Array, " k"]:
        return self.loss.link(output)

    def check_task(self, task: Task) -> None:
        if task.kind != "classes" or self.loss.task() != "classes":
            raise RequestError(
                f"JointDivergence learns inputs and classes together, but the target holds {task.kind}. "
                "Use a divergence of the inputs alone, as PersistentDivergence, or --task classes."
            )
