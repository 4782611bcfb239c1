"""Requests for targets that speak the client's API: only the fields that the gateway uses are parsed, the rest is
unchanged.
"""
