"""What is wrong, where, and what to do next: checks of gradients, data, wiring, learning, rates, flow, choices."""

from ..runtime.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
