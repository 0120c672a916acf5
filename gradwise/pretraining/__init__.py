"""Greedy layer-wise pre-training: one layer at a time, then the whole (row A1)."""

from ..runtime.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
