"""Optimisers that average parameters or gradients over training."""
