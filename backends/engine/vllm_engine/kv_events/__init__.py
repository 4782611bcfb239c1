"""vLLM's prefix cache events, translated to our block keys."""
