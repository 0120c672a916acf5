"""Examples that are trees: read from brackets or nested tuples, held as arrays."""
