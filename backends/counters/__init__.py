"""Counters that several gateways share, kept in Redis: the connection, the script it runs, and what travels."""
