"""Counters of limits and budgets, in this process or shared through Redis."""
