"""The shells for scikit-learn: `Classifier` and `Regressor` train one network, `AutoClassifier` and `AutoRegressor`
search for it; `AutoEncoder` and its like learn features, and `StackedClassifier` and its like begin with them. They are
thin: all work is `gradwise.training`'s, `gradwise.searching`'s and `gradwise.pretraining`'s.
"""

from ..runtime.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
