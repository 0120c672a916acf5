"""Paired comparisons on the given data: challenges, seeds, cheap estimates."""
