"""Limits and budgets in the data plane: counters, where they are kept, and reservations over several of them."""
