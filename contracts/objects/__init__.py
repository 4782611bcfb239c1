"""Stored objects of callers: files, batches and responses."""
