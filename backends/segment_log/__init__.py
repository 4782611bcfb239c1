"""Bounded logs and small values on disk that survive crashes and damage."""
