"""Readers of text: from the words of one text, as numbers, to one vector."""
