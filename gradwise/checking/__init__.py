"""Is anything wrong, where, and what next: checks of a loss and its gradient, of data, wiring, learning, rates, flow."""
