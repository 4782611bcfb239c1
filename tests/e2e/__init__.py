"""Walks through whole installations; their shared one ends with the last test of this package."""
