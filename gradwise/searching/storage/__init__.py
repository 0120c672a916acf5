"""Storage of a study: its trials, its networks, and the file that repeats it."""
