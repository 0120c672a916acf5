"""Strategies: each takes the history and proposes the next trials."""
