"""Optimisers around another optimiser."""
