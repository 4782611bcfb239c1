"""Clients of engine and provider hosts, which are reached over sockets."""
