"""Limits and budgets in the data plane: counters, their storage, and reservations across several counters."""
