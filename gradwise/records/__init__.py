"""Records: findings, outcomes, trials, and the results of a fit, a study and a check."""

from ..runtime.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
