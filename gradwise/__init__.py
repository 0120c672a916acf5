"""gradwise: the practice of training neural networks, as software.

    import gradwise as gw
    model = gw.fit("houses.csv", target="price")                        one network
    model = gw.search("houses.csv", target="price", budget="10min")     the best that ten minutes buy
    gw.check(loss, model, batch)                                        is anything wrong?
    gw.Classifier().fit(X, y).score(X, y)
    gw.DenoisingAutoEncoder().fit(X).transform(X)

Every public name is here, and one level below in the package it belongs to (`gw.optimisers.Sgd`). Names load on first
use, so that `import gradwise` costs nothing.
"""

from .runtime.public_names import lazy_names

__version__ = "0.2.0"

_PACKAGES = (
    *("specs", "records", "runtime", "tracing", "curvature", "data", "models", "criteria", "optimisers", "evaluation"),
    *("training", "pretraining", "searching", "checking", "tracking", "reporting", "exporting", "estimators"),
    *("language", "testing"),
)
__all__, __getattr__, __dir__ = lazy_names(__name__, ("defaults", *_PACKAGES))
