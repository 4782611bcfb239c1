"""Classify prompts by topic and complexity from examples, for semantic routes."""
