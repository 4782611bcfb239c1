"""A simulated outage: the gateway's own failover code in virtual time."""
