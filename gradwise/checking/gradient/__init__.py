"""Is the gradient right: finite differences, intermediate values, the line at fault."""
