"""The next word by a sample of the vocabulary: an estimate of the softmax that costs as much as the sample (row G6).

    SampledNextWord(samples=500)                        noise: unigram frequencies to the power 0.75
    SampledNextWord(samples=500, noise="log-uniform")   by rank alone, as in a text that follows Zipf's law

The loss of a word t with score s_t is log(exp s_t + sum_j exp s_j / pi_j) - s_t: the sum over all other words of the
normaliser is estimated by importance weights (Bengio and Senecal 2003, 2008). The words j are drawn without
replacement, once for all words of an update: the `samples` largest of log q_j + Gumbel noise. A word enters with
probability pi_j = 1 - exp(-exp(log q_j - kappa)), kappa being the largest that was left out; with these weights the sum
is unbiased (Duffield, Lund and Thorup 2007; Kool, van Hoof and Welling 2019). The predicted word itself is never among
the others. So the gradient tends to that of all words as samples grow, and is equal to it when all are drawn.

Validation and the reported scores are exact, by all words; the training curve shows the estimate.
"""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key, PyTree

from ...runtime.errors import RequestError
from ...specs.knobs import knob, switch
from ...specs.priors import Choice, LogInteger, Uniform
from .next_word import STREAMS, AbstractNextWord, check_language_network, exact_losses

_NOISES = ("unigram", "log-uniform", "uniform")


def draw_words(
    log_noise: Float[Array, " words"], samples: int, key: Key[Array, ""]
) -> tuple[Int[Array, " samples"], Float[Array, " samples"]]:
    """Distinct words, and the logarithm of the probability with which each of them was drawn."""
    perturbed = log_noise + jr.gumbel(key, log_noise.shape)
    values, words = jax.lax.top_k(perturbed, samples + 1)
    chosen = words[:samples]
    rates = jnp.exp(jnp.clip(log_noise[chosen] - values[samples], -30.0, 30.0))
    return chosen, jnp.log(-jnp.expm1(-rates))


class SampledNextWord(AbstractNextWord):
    """The likelihood of each word, its normaliser estimated from a sample of the other words."""

    samples: int = switch(
        500,
        allowed="[1, inf)",
        prior=LogInteger(50, 2000),
        row="G6",
        kind="optimiser",
        about="words drawn in an update; with as many as there are, the loss is exact",
    )
    noise: str = switch(
        "unigram",
        allowed=_NOISES,
        prior=Choice(_NOISES),
        row="G6",
        kind="optimiser",
        about="what words are drawn by: their frequencies to a power, their ranks, or nothing",
    )
    power: float = knob(
        0.75,
        allowed="[0, 1]",
        prior=Uniform(0.5, 1.0),
        row="G6",
        about="the power of the frequencies that words are drawn by",
    )
    streams: int = switch(0, **STREAMS)

    def remembered(self, model: PyTree, inputs: Float[Array, "n length"]) -> PyTree:
        """The logarithm of what each word is drawn by."""
        ranks = jnp.arange(model.words, dtype=jnp.float32)
        if self.noise == "unigram":
            return self.power * jnp.log(model.frequencies(inputs))
        return jnp.log(jnp.log1p(1.0 / (ranks + 1.0))) if self.noise == "log-uniform" else 0.0 * ranks

    def word_losses(
        self,
        model: PyTree,
        features: Float[Array, "n width"],
        words: Int[Array, " n"],
        memory: PyTree,
        *,
        key: Key[Array, ""],
    ) -> Float[Array, " n"]:
        if self.samples >= model.words:
            return exact_losses(model, features, words)
        layer = model.word_layer
        chosen, log_chances = draw_words(memory, self.samples, key)
        own = jnp.sum(features * layer.weight[words], axis=1) + layer.bias[words]
        others = features @ layer.weight[chosen].T + (layer.bias[chosen] - log_chances)
        others = jnp.where(chosen == words[:, None], -1e30, others)  # the word itself is counted once
        return jax.nn.logsumexp(jnp.concatenate([own[:, None], others], axis=1), axis=1) - own

    def check_network(self, network: Any) -> None:
        check_language_network(self, network)
        if network.word_layer.weight.ndim != 2:
            raise RequestError("SampledNextWord needs output FullSoftmax(); train two levels by NextWord().")
