"""The training journey: `fit`, and the pieces `init`, `step`, `interval` for those who drive the loop themselves."""
