"""Paired comparisons on the data at hand: challenges, seeds, cheap estimates."""
