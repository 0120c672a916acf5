"""Checks of learning: chance level, overfitting a few examples, learning rates, learning curves."""
