"""The process of the data plane: its settings, its parts, its start and end, and the health check."""
