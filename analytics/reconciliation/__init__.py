"""Providers' bills against recorded usage: imported, matched, and every difference named."""
