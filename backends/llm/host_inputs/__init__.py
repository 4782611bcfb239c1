"""Conversion of requests to the input format of engine hosts."""
