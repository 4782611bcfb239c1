"""Scenarios about streams, guardrails, routing and caches."""
