"""Counters shared by several gateways, stored in Redis: the connection, its script, and the messages."""
