"""What every process does: start, logs, watching others, compiled modules."""
