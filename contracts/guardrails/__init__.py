"""Guardrails: what may go into a model and come out of it, and the types shared by their parts."""
