"""gradwise: the practice of training neural networks, as software.

    import gradwise as gw
    result = gw.fit(gw.defaults.classification(), dataset, key=jax.random.key(0))
    gw.check(loss, model, batch)
    gw.Classifier().fit(X, y).score(X, y)
    gw.AutoClassifier("10min").fit(X, y).study_
    gw.DenoisingAutoEncoder().fit(X).transform(X)

Every public name is here, and one level below in the package it belongs to (`gw.optimisers.Sgd`). Names load on first
use, so that `import gradwise` costs nothing.
"""

from .runtime.public_names import lazy_names

__version__ = "0.2.0"

_PACKAGES = (
    *("specs", "records", "runtime", "tracing", "curvature", "data", "models", "criteria", "optimisers", "evaluation"),
    *("training", "pretraining", "searching", "checking", "tracking", "reporting", "exporting", "estimators"),
    "testing",
)
__all__, __getattr__, __dir__ = lazy_names(__name__, ("defaults", *_PACKAGES))
