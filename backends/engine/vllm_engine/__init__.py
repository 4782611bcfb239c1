"""vLLM behind the engine host's seam: the same wire, records and accounts as every engine of ours."""
