"""Text embeddings (all-MiniLM-L6-v2) in a separate process, for semantic decisions of the gateway."""
