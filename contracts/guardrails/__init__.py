"""Guardrails: what may go into a model and come out of it, in the nouns that all their parts share."""
