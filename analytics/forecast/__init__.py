"""Forecasts of spending by tenant, with intervals, and of the month's total."""
