"""Tracking: a training or a search is watched by your functions, or written for TensorBoard, MLflow or W&B."""

from ..runtime.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
