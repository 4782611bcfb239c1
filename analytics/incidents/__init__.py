"""Finds probable causes of an incident, with evidence from the store."""
