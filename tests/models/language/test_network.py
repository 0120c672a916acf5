"""What all language models share: frequencies of words, and what is refused."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from gradwise.models.language.feed_forward import FeedForwardLanguageModel
from gradwise.models.language.recurrent_language import RecurrentLanguageModel
from gradwise.models.language.word_output import TwoLevelSoftmax
from gradwise.runtime.errors import RequestError

ROWS = jnp.asarray([[3, 0, 1, 1], [1, 1, 2, -1]], jnp.float32)


def test_frequencies_count_what_is_predicted_once() -> None:
    network = RecurrentLanguageModel(words=4, size=2, units=(2,)).build((4,), 0, key=jr.key(0))
    counts = np.array([1, 3, 1, 0]) + 0.5  # without the first column, which is context, and without -1
    begun = network.with_unigram_biases(ROWS)
    np.testing.assert_allclose(np.exp(begun.output.bias), counts / counts.sum(), rtol=1e-5)
    np.testing.assert_allclose(network.frequencies(ROWS), counts / counts.sum(), rtol=1e-6)


@pytest.mark.parametrize("kind", [FeedForwardLanguageModel, RecurrentLanguageModel])
def test_what_cannot_be_read_is_refused(kind: type) -> None:
    model = kind(words=3, size=2, units=(2,))
    with pytest.raises(RequestError, match=r"word number 3\. Give words=4"):
        model.check_inputs(ROWS)
    with pytest.raises(RequestError, match="windows of at least"):
        model.build((1,), 0, key=jr.key(0))
    with pytest.raises(RequestError, match=r"tied` needs output FullSoftmax\(\); got TwoLevelSoftmax"):
        kind(tied=True, output=TwoLevelSoftmax())
