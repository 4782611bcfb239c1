"""Counters of limits and budgets, in this process's memory or shared through Redis."""
