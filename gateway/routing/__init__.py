"""Chooses which target answers: replicas of a pool, fallback chains of routes, health, retries and hedging."""
