"""Exporters: from the spool to the store."""
