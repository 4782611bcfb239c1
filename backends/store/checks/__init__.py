"""Checks of a store's contents: damage, missing records, wrong rollups, tokens that do not add up."""
