"""Observability of a gateway: readiness, metrics, and the processes around it."""
