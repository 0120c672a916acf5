"""The criterion of deep Boltzmann machines (row A11): mean field on the data against the model's persistent chains.

    MeanFieldDivergence()                              100 chains, 5 Gibbs steps per update, 10 mean-field sweeps
    MeanFieldDivergence(steps=1, chains=500)

The network has `mean_field(v, sweeps)`, `energy(states)`, `bound(states)`, `begin(v)`, `gibbs(states)`,
`renewed(first, states)` and `activation(layer, states)`, as `gradwise.models.deep_boltzmann` writes them; states are
tuples of layers.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key, PyTree, Scalar

from ..specs.contracts import AbstractCriterion, Batch, ValueAndTerms
from ..specs.knobs import is_off, switch
from ..specs.networks import require_methods
from ..specs.priors import Choice
from .penalties import L2, AbstractPenalty
from .reconstruction import refuse_outside_unit

_WEIGHTS = "weights.*"


def energy_gap(
    model: PyTree,
    data: PyTree,
    data_shares: Float[Array, " n"],
    model_states: PyTree,
    model_shares: Float[Array, " m"],
) -> Scalar:
    """The mean energy of the data's states less that of the model's, each by its share; states are held fixed.

    Its gradient is E_data[dE] - E_model[dE]. Under the exact posterior and the model's exact distribution that is the
    gradient of -log p(v); under mean field, of minus the bound with its means held.
    """
    data, model_states = jax.lax.stop_gradient((data, model_states))
    return data_shares @ model.energy(data) - model_shares @ model.energy(model_states)


class MeanFieldDivergence(AbstractCriterion):
    """Variational learning with persistent chains (Salakhutdinov and Hinton 2009).

    The gradient is that of mean E(v, mu(v)) - mean E(state), with mu the mean-field means of the hidden layers, and
    states of Markov chains that continue from update to update by alternating Gibbs steps. In a chain's last state the
    odd layers are at their means given the even ones, which only reduces variance.

    Its score is the pseudo-likelihood (row E20), -sum over inputs of log p(v_i | all others). The log-odds of v_i
    are the difference of two bounds, with v_i at 1 and at 0; for one hidden layer that is exact. In each example
    `asked` of the inputs are evaluated, always the same ones, and the sum is scaled up. (Letting mean field fill in
    many missing inputs at once would not work: if two agree it settles on one mode, and better models look worse.)
    """

    learns_from = "inputs"
    steps: int = switch(5, allowed="[1, inf)", prior=Choice((1, 5, 10)), row="A11", about="Gibbs steps per update")
    chains: int = switch(100, allowed="[1, inf)", prior=Choice((100,)), row="A11", about="persistent Markov chains")
    sweeps: int = switch(
        10, allowed="[1, inf)", prior=Choice((10,)), row="A11", about="mean-field sweeps for each example"
    )
    penalties: tuple[AbstractPenalty, ...] = (L2(where=_WEIGHTS),)
    asked: int = switch(4, allowed="[1, inf)", row="E20", about="inputs of each example on which the score is computed")

    def begin(self, model: PyTree, inputs: Float[Array, "n ..."], *, key: Key[Array, ""]) -> PyTree:
        which, up = jr.split(key)
        rows = jr.randint(which, (self.chains,), 0, inputs.shape[0])
        return model.begin(inputs.reshape(inputs.shape[0], -1)[rows], key=up)

    def __call__(self, model: PyTree, batch: Batch, *, key: Key[Array, ""]) -> ValueAndTerms:
        inputs = batch.inputs.reshape(batch.inputs.shape[0], -1)
        fixed = jax.lax.stop_gradient(model)
        data = fixed.mean_field(inputs, self.sweeps)
        memory = jax.lax.fori_loop(
            0, self.steps, lambda step, states: fixed.gibbs(states, key=jr.fold_in(key, step)), batch.memory
        )
        slots = inputs.shape[0]
        shares = batch.weights / slots
        even = jnp.full(self.chains, jnp.sum(shares) / self.chains)
        total = energy_gap(model, data, shares, fixed.renewed(1, memory), even)
        share = jnp.sum(batch.present) / (slots * batch.total)
        for penalty in self.penalties:
            if not is_off(penalty.coefficient):
                total += share * penalty.coefficient * penalty(model)
        losses = jnp.sum(self._elements(fixed, data, inputs), axis=1)
        return total, {"loss": losses, "score": losses, "memory": memory}

    def _elements(self, model: PyTree, states: PyTree, inputs: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """The cross-entropy of each input given the first hidden layer of these states."""
        odds = model.activation(0, states)
        return jax.nn.softplus(odds) - inputs * odds

    def pseudo_loss(self, model: PyTree, v: Float[Array, "n d"]) -> Float[Array, " n"]:
        """-sum over inputs of log p(v_i | all others), by mean field, of each example."""
        count, size = v.shape
        if self.asked < size:  # the same places at every call: models differ, not luck
            places = jr.randint(jr.key(0), (self.asked, count), 0, size)
        else:
            places = jnp.broadcast_to(jnp.arange(size)[:, None], (size, count))

        def one(place: Int[Array, " n"]) -> Float[Array, " n"]:
            here = jax.nn.one_hot(place, size, dtype=v.dtype)
            rest = v * (1.0 - here)
            lit, dark = (model.bound(model.mean_field(rest + value * here, self.sweeps)) for value in (1.0, 0.0))
            return jax.nn.softplus(lit - dark) - jnp.sum(v * here, axis=1) * (lit - dark)

        return size * jnp.mean(jax.lax.map(one, places), axis=0)

    def examples(
        self, model: PyTree, inputs: Float[Array, "n ..."], targets: Array
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        found = self.measures(model, inputs)
        return found["pseudo_likelihood"], found["reconstruction_error"]

    def measured(self, model: PyTree) -> tuple[str, ...]:
        return ("pseudo_likelihood", "reconstruction_error")

    def measures(self, model: PyTree, inputs: Float[Array, "n ..."]) -> dict[str, Float[Array, " n"]]:
        """-log of the pseudo-likelihood; and the cross-entropy of going up by mean field and down once."""
        v = inputs.reshape(inputs.shape[0], -1)
        seen = jnp.sum(self._elements(model, model.mean_field(v, self.sweeps), v), axis=1)
        return dict(zip(self.measured(model), (self.pseudo_loss(model, v), seen), strict=True))

    def check_inputs(self, inputs: Float[Array, "n ..."]) -> None:
        refuse_outside_unit("a deep Boltzmann machine", float(jnp.min(inputs)), float(jnp.max(inputs)))

    def check_network(self, network: PyTree) -> None:
        require_methods("MeanFieldDivergence", network, ("mean_field",), "DeepBoltzmann")
