"""Listeners' connections, addresses and TLS."""
