"""Detectors that need only a text: hidden text, prompt injection, canary tokens."""
