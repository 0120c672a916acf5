"""The shells for scikit-learn: `Classifier` and `Regressor`. They are thin: all work is `gradwise.training`'s."""

from .classifier import Classifier
from .regressor import Regressor

__all__ = ["Classifier", "Regressor"]
