"""Metering of vLLM: workers measure each step, and the host turns measurements into step records and accounts."""
