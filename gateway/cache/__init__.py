"""Answers that were given once and are given again: to the same tenant, for the same request or one that means it."""
