"""Checks of a store: damage, missing numbers, rollups that differ, unaccounted tokens."""
