"""What is known of a pool's replicas, and which of them a request should go to. Pure: the gateway's router and the
planner's simulation choose by the same code.
"""
