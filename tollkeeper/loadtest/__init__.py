"""Finds the highest request rate at which a model meets its SLO, and the cost at that rate."""
