"""Recommends savings from a range's records, with evidence, largest first."""
