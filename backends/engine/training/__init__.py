"""How the built-in model was made: corpus and training. Not imported by anything that serves."""
