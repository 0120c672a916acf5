"""Embeddings learned from pairs: neighbours lie close together, other examples apart."""
