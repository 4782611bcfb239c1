"""Receivers: OTLP over HTTP and gRPC, and Prometheus scrapes."""
