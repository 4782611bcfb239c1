"""Identities and keys of requests."""
