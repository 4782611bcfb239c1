"""Prometheus metrics of the data plane, rendered from existing counters on a scrape."""
