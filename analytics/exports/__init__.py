"""Exports of costs: FOCUS files, tables, invoices."""
