"""Statistics of the trials of a study: the expected best, failures, knobs, costs, honest estimates."""
