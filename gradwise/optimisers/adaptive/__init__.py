"""Learning rates that set themselves from what training shows."""
