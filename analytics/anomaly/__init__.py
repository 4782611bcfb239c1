"""Spending that is not as usual, and what drove it."""
