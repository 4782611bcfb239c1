"""Checks of a store: damage, missing records, wrong rollups, unaccounted tokens."""
