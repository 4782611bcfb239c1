"""Requests for targets that speak a client's API themselves: read for what the gateway decides by, else untouched."""
