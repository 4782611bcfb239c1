"""What inference servers that are not ours say of themselves: their Prometheus metrics, read into the same words."""
