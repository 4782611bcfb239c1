"""Fair queueing between tenants in front of a pool, for the event loop."""
