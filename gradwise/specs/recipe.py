"""A `Recipe` holds all choices of one run, as a pytree of specs.

recipe = gradwise.defaults.classification(optimiser=Sgd(learning_rate=0.03))
recipe.optimiser.learning_rate
"""

from typing import Any

import equinox as eqx

from .adapters import as_optimiser
from .contracts import AbstractBatches, AbstractOptimiser, AbstractScaler, AbstractSplit, AbstractStopping
from .flax_models import as_flax_model, is_flax
from .knobs import Spec


def _as_spec_or_module(model: Any) -> Any:
    """A module of Flax as a spec, since it is no pytree of arrays alone; anything else as it is."""
    return as_flax_model(model) if is_flax(model) else model


class Recipe(Spec):
    """How to split, scale, batch, model, evaluate, optimise and stop.

    `model` is a spec, or a module of Equinox or Flax; `criterion` is a spec or a plain function
    `loss(model, batch, key)` that returns a scalar; `optimiser` is a spec or an Optax transformation.
    """

    split: AbstractSplit
    scaler: AbstractScaler
    batches: AbstractBatches
    model: Any = eqx.field(converter=_as_spec_or_module)
    criterion: Any
    optimiser: AbstractOptimiser = eqx.field(converter=as_optimiser)
    stopping: AbstractStopping
