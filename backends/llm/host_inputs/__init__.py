"""Requests as engine hosts take them."""
