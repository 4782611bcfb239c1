"""Our own engine: Hugging Face models with paged KV cache, continuous batching and metering of every step."""
