"""Formats of providers' bills: one module each, all read into `BillLine`."""
