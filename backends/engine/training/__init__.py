"""Corpus and training of the built-in model. Not imported in production."""
