"""Scenarios about charges, budgets, prices and GPU time."""
