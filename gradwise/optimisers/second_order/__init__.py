"""Optimisers that use curvature: Newton steps, natural gradients, line searches."""
