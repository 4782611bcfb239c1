"""Common parts of processes: start, logs, health checks of children, compiled modules."""
