"""Is anything wrong, where, and what next: checks of gradients, data, wiring, learning, rates, flow, choices."""
