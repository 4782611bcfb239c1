"""Watches keys for abuse, and tells of it."""
