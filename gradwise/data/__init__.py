"""Data: read a table or arrays, split them, scale them, deal them out in mini-batches."""

from ..runtime.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
