"""Attempts at targets: which may be called now, how often, for how long, and what happens after a failure."""
