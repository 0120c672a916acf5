"""The shells for scikit-learn: `Classifier` and `Regressor` train one network, `AutoClassifier` and `AutoRegressor`
search for it. They are thin: all work is `gradwise.training`'s and `gradwise.searching`'s.
"""

from typing import Any

from .classifier import Classifier
from .regressor import Regressor

__all__ = ["AutoClassifier", "AutoRegressor", "Classifier", "Regressor"]


def __getattr__(name: str) -> Any:
    if name in {"AutoClassifier", "AutoRegressor"}:  # on first use: one network needs nothing of the search
        from . import auto

        return getattr(auto, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
