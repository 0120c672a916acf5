"""Programs read from traced functions: equations, loops, layers, and how signals flow through them."""
