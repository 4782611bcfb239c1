"""Guardrails at work: stages before and after the model, each a detector and what is done about its findings."""
