"""Guardrail detectors, one per file."""
