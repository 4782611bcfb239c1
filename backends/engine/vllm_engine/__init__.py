"""vLLM as an engine of the engine host: same protocol, records and GPU-time accounting as the other engines."""
