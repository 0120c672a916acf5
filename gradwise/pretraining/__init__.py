"""Greedy layer-wise pre-training: one layer at a time, then the whole (row A1)."""
