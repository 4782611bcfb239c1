"""The state of a pool's replicas and the choice among them. Pure; used by the gateway's router and the planner's
simulation.
"""
