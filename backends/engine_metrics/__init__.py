"""Prometheus metrics of six third-party inference servers, parsed into common fields."""
