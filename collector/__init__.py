"""Receives telemetry, keeps it safe on disk, writes it to the store exactly once."""
