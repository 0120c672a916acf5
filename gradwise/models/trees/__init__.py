"""Recursive networks: the same weights at every node of a tree."""
