"""Scaling sequences step by step.

    Steps(Standardise())                             each channel to mean 0 and deviation 1 over all training steps
    Steps(Chain((Logarithm(), Standardise())))

`Automatic` does the same with its part `sequences`.
"""

from typing import Any

from ..runtime.errors import RequestError
from ..specs.contracts import AbstractScaler
from ..specs.dataset import Column
from ..specs.fitted_scaler import FittedScaler
from ..specs.sequences import Sequences
from .fitted_scalers import OverSteps
from .scaling import Standardise


class Steps(AbstractScaler):
    """Each step of a sequence through one scaler, fitted on all steps of the training sequences."""

    scaler: AbstractScaler = Standardise()

    def fit(self, inputs: Any, columns: tuple[Column, ...] = ()) -> FittedScaler:
        if not isinstance(inputs, Sequences):
            raise RequestError(f"`Steps` scales `Sequences`; got inputs of shape {tuple(inputs.shape)}. Leave it out.")
        return OverSteps(self.scaler.fit(inputs.values, ()))
