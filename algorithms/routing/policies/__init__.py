"""Routing policies that choose a replica, one per file, with the interface in `base.py`."""
