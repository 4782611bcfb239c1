"""The process of the data plane: its settings, its components, start and stop, and the health check."""
