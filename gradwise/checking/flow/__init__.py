"""Checks of the signal flow through the layers, the graph of the program, and the coordinate check."""
