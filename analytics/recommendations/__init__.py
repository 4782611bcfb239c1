"""Recommend savings from the records of a range, with evidence, largest first."""
