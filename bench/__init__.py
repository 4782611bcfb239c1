"""Benchmarks that print one JSON line per result."""
