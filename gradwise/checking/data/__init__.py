"""Is anything wrong with the data: leakage, units, labels, order."""
