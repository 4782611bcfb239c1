"""Requests and answers of the APIs that applications use."""
