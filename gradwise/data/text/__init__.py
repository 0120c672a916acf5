"""Columns of text: their words, the places they take in a row, and the vocabulary fitted on the training set."""
