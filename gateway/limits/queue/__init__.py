"""Who goes next in front of a pool: fair queueing between tenants, and its face to the event loop."""
