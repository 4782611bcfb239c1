"""Budgets: spending is stored next to the journal and published to the control database."""
