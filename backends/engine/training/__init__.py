"""Creates the corpus of the built-in model and trains it. Not imported in production."""
