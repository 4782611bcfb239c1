"""Scenarios about stops, crashes and broken surroundings."""
