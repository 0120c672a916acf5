"""Can it learn: chance level, overfitting a few examples, learning rates, learning curves."""
