"""Counts of rollouts' arms, and the verdict over them."""
