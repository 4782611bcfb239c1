"""Detects unusual spending and its drivers."""
