"""Detectors that need only a text: hidden instructions, prompt injection, canary tokens."""
