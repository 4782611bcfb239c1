"""Budgets: what is spent, kept beside the journal and published to the control database."""
