"""A `Recipe` holds all choices of one run, as a pytree of specs.

recipe = gradwise.defaults.classification(optimiser=Sgd(learning_rate=0.03))
recipe.optimiser.learning_rate
"""

from typing import Any

from .contracts import AbstractBatches, AbstractOptimiser, AbstractScaler, AbstractSplit, AbstractStopping
from .knobs import Spec


class Recipe(Spec):
    """How to split, scale, batch, model, evaluate, optimise and stop.

    `model` is a spec or an Equinox module that is already built; `criterion` is a spec or a plain function
    `loss(model, batch, key)` that returns a scalar.
    """

    split: AbstractSplit
    scaler: AbstractScaler
    batches: AbstractBatches
    model: Any
    criterion: Any
    optimiser: AbstractOptimiser
    stopping: AbstractStopping
