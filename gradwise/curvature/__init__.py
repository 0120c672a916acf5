"""The objective and its derivatives: second-order products, eigenvalues, diagonals, per-example gradients."""
