"""gradwise: the practice of training neural networks, as software.

    import gradwise
    result = gradwise.fit(gradwise.defaults.classification(), dataset, key=jax.random.key(0))
    gradwise.check(loss, model, batch)
    gradwise.Classifier().fit(X, y).score(X, y)
    gradwise.AutoClassifier("10min").fit(X, y).study_
    gradwise.DenoisingAutoEncoder().fit(X).transform(X)

Names load on first use, so that `import gradwise` costs nothing.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "fit": "gradwise.training.fit",
    "cross_validate": "gradwise.training.cross_validation",
    "RunOptions": "gradwise.training.loop",
    "init": "gradwise.training.state",
    "Examples": "gradwise.curvature.objective",
    "step": "gradwise.training.update",
    "gather_batch": "gradwise.training.update",
    "interval": "gradwise.training.interval",
    "load_predictor": "gradwise.training.predictor",
    "save_predictor": "gradwise.training.predictor",
    "search": "gradwise.searching.search",
    "Budget": "gradwise.searching.storage.study_file",
    "SearchPlan": "gradwise.searching.search",
    "StudyOptions": "gradwise.searching.search",
    "Study": "gradwise.records.study",
    "Space": "gradwise.specs.search_space",
    "check": "gradwise.checking.check",
    "Subject": "gradwise.checking.subject",
    "Checked": "gradwise.records.check",
    "report": "gradwise.reporting.report",
    "Recipe": "gradwise.specs.recipe",
    "Dataset": "gradwise.specs.dataset",
    "Classes": "gradwise.specs.dataset",
    "Labels": "gradwise.specs.dataset",
    "Numbers": "gradwise.specs.dataset",
    "read": "gradwise.data.reading.read",
    "Classifier": "gradwise.estimators.classifier",
    "Regressor": "gradwise.estimators.regressor",
    "AutoClassifier": "gradwise.estimators.auto",
    "AutoRegressor": "gradwise.estimators.auto",
    "AutoEncoder": "gradwise.estimators.features",
    "DenoisingAutoEncoder": "gradwise.estimators.features",
    "ContractiveAutoEncoder": "gradwise.estimators.features",
    "RBM": "gradwise.estimators.features",
    "SparseCoding": "gradwise.estimators.features",
    "StackedAutoEncoder": "gradwise.estimators.stacked",
    "StackedClassifier": "gradwise.estimators.stacked",
    "StackedRegressor": "gradwise.estimators.stacked",
}
__all__ = ["__version__", "defaults", *_HOMES]


def __getattr__(name: str) -> Any:
    if name == "defaults":
        return importlib.import_module("gradwise.defaults")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'gradwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
