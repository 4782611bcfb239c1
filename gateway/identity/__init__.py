"""Who is calling: keys, tokens of identity providers, the addresses they come from, and how many guesses are heard."""
