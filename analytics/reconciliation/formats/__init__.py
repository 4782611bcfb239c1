"""Formats of providers' bills: one module each, all parsed into `BillLine`."""
