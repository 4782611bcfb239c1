"""How a replica is chosen: one policy a file, behind the interface in `base.py`."""
