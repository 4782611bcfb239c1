"""Costs for other programs and for people who pay: FOCUS files, tables, invoices."""
