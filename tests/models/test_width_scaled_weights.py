"""Initial output weights for width transfer (row J7)."""

import jax.random as jr
import numpy as np
from scipy import stats

from gradwise.models.initial_weights import FanIn
from gradwise.models.mlp import Mlp
from gradwise.models.width_scaled_weights import OutputScaled


def test_at_the_base_width_it_is_the_usual_initial() -> None:
    usual = FanIn(scale=0.7).draw(10, 48, 2.0, key=jr.key(1))
    ours = OutputScaled(scale=0.7, base_width=48).draw(10, 48, 2.0, key=jr.key(1))
    np.testing.assert_allclose(ours, usual, rtol=1e-6)


def test_deviations_fall_as_one_over_fan_in() -> None:
    for width in (16, 64, 1024):
        weights = np.asarray(OutputScaled(base_width=64).draw(10, width, 1.0, key=jr.key(2)))
        limit = 8 / width
        assert stats.kstest(weights.ravel(), stats.uniform(-limit, 2 * limit).cdf).pvalue > 1e-3


def test_in_a_larger_array_the_scale_is_that_of_the_layer() -> None:
    """A padded network's output weights: drawn in 32 columns for the 20 that are there."""
    initial = OutputScaled(base_width=16)
    alone = initial.draw(5, 20, 1.0, key=jr.key(3))
    padded = initial.draw(5, 20, 1.0, key=jr.key(3), shape=(5, 32))
    np.testing.assert_allclose(np.abs(padded).max(), np.abs(alone).max(), rtol=0.1)
    network = Mlp(widths=(20,), output_initial=initial).build((4,), 5, key=jr.key(3))
    assert np.abs(network.output.weight).max() <= 4 / 20
