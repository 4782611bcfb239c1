"""Our own engine: Hugging Face model code over paged keys and values, batched continuously, metered step by step."""
