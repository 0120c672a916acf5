"""Checks of the gradient: finite differences, intermediate values, the faulty line."""
