"""Criteria of language models: the next word, by all words or by a sample of them."""
