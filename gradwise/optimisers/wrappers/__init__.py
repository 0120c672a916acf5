"""Optimisers that wrap another optimiser."""
