"""Recurrent networks: cells, pooling over steps, and the network of sequences."""
