"""An outage played through: the gateway's own failover code, in time that is only counted."""
