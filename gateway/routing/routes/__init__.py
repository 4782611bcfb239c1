"""Resolve a route: usable entries, their order, and the attempts along them."""
