"""Estimates made before usage is known: input tokens, output tokens, price cards."""
