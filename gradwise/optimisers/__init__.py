"""Optimisers: specs that build Optax transformations."""
