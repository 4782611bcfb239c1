"""Forecast spending by tenant, with intervals, and the month's total."""
