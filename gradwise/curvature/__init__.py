"""The objective and its derivatives: second-order products, eigenvalues, diagonals, per-example gradients."""

from ..runtime.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
