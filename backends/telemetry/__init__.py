"""OTLP envelopes and Prometheus text."""
