"""The embedder's thread: gathers what waits, embeds it in batches, answers each request whole."""
