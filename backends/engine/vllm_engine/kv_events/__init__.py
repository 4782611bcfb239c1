"""What vLLM tells of its prefix cache, in our own names of blocks."""
