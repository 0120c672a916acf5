"""Learning rates that adapt during training."""
