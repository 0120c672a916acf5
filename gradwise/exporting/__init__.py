"""Exporting: a trained model as one file that other programs run: ONNX, StableHLO, or Python with NumPy alone."""

from ..runtime.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
