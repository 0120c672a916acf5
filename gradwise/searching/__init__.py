"""Search: strategies propose, populations train, and one store keeps every trial."""

from ..runtime.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
