"""Checks of the data: leakage, units, labels, order."""
