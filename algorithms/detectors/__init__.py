"""Detectors that compute from a text alone: hidden instructions, prompt injection, markers that must not come out."""
