"""Algorithm 1 of the chapter: hyper-parameters chosen greedily, layer by layer (row E8)."""
