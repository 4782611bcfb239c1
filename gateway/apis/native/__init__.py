"""Requests for targets that speak a client's API themselves: only evaluated fields are read, the rest is unchanged."""
