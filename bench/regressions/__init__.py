"""Measure that defects found by outside use stay fixed; one scenario is one module of a group's folder."""
