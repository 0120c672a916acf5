"""Data: read tables or arrays, split and scale them, and form mini-batches."""

from ..runtime.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
