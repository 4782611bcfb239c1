"""Measurements of GPUs: memory, power, clocks, activity, faults, and the processes that use them."""
