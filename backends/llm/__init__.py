"""Targets of models: one module per way to reach a model."""
