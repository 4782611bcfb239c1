"""The trying of candidates: which may be called now, how often, for how long, and what becomes of those that fail."""
