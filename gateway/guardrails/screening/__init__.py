"""Detectors applied to texts and streams."""
