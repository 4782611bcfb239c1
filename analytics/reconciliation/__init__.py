"""Reconciliation of providers' bills with recorded usage: import, matching, and causes of all differences."""
