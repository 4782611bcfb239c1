"""What texts mean, as vectors: all-MiniLM-L6-v2 in a process of its own, for what the gateway decides by meaning."""
