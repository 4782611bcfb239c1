"""Guardrails: stages before and after the model. Each has a detector and an action for what it finds."""
