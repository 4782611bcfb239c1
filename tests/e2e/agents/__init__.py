"""Coding agents as their users install them."""
