"""Training: `fit`, and `init`, `step` and `interval` for writing your own loop."""

from ..runtime.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
