"""Limits, budgets, objectives and alerts."""
