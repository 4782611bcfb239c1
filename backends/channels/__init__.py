"""Senders of notifications, one file per kind of channel. An attempt never raises; it returns its result."""
