"""The shells for scikit-learn: `Classifier` and `Regressor` train one network, `AutoClassifier` and `AutoRegressor`
search for it; `AutoEncoder` and its like learn features, and `StackedClassifier` and its like begin with them. They are
thin: all work is `gradwise.training`'s, `gradwise.searching`'s and `gradwise.pretraining`'s.
"""

import importlib
from typing import Any

from .classifier import Classifier
from .regressor import Regressor

# On first use: one network needs nothing of the search, nor of pre-training.
_HOMES = {
    "AutoClassifier": "auto",
    "AutoRegressor": "auto",
    "AutoEncoder": "features",
    "ContractiveAutoEncoder": "features",
    "DenoisingAutoEncoder": "features",
    "RBM": "features",
    "SparseCoding": "features",
    "StackedAutoEncoder": "stacked",
    "StackedClassifier": "stacked",
    "StackedRegressor": "stacked",
}
__all__ = ["Classifier", "Regressor", *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
