"""The training journey: `fit`, and the pieces `init`, `step`, `interval` for those who drive the loop themselves."""

from ..runtime.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
