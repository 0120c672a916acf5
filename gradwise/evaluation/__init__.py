"""What a record shows: metrics, evidence, findings, curves, and the statistics of trials. Runs no network."""

from ..runtime.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
