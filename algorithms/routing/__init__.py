"""State of a pool's replicas and the choice among them, without I/O. The gateway's router and the planner's simulation
use the same code.
"""
