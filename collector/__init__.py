"""Receives telemetry, buffers it in a spool on disk, and writes it to the store exactly once."""
