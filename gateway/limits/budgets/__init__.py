"""Budgets: spending is stored beside the journal and published to the control database."""
