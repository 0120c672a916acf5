"""scikit-learn estimators: `Classifier` and `Regressor` train one network, `AutoClassifier` and `AutoRegressor` search;
`AutoEncoder` and others learn features, `StackedClassifier` and `StackedRegressor` pre-train and fine-tune. They
are thin wrappers around `gradwise.training`, `gradwise.searching` and `gradwise.pretraining`.
"""

from ..runtime.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
