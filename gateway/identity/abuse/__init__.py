"""Watches keys for abuse, and reports incidents."""
