"""Metering of vLLM: what its workers measure of each step, and how the host makes step records and accounts of it."""
