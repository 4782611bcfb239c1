"""GPUs as they are measured from outside: memory, power, clocks, activity, faults, and who else computes on them."""
