"""What is connected to what: examples, modes, padding, losses and outputs."""
