"""Data: read a table or arrays, split them, scale them, deal them out in mini-batches."""
