"""Small data and a small network, shared so that programs are compiled once."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

from gradwise.data.batches import Reshuffled
from gradwise.models.mlp import Mlp
from gradwise.optimisers.adaptive.adam import Adam
from gradwise.optimisers.averaging.parameter_average import MovingAverage
from gradwise.training.stopping import Off


@pytest.fixture(scope="session")
def iris():
    """150 rows of four numbers, in random order, with three classes."""
    inputs, classes = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(inputs))
    return inputs[order], classes[order]


@pytest.fixture
def small():
    """Parameters of an estimator that trains in a moment, whatever the recommended recipe is."""
    return {
        "model": Mlp(widths=(16,), dropout=0.0),
        "optimiser": MovingAverage(Adam(learning_rate=0.01)),
        "batches": Reshuffled(size=32),
        "stopping": Off(epochs=20),
        "random_state": 0,
    }
