"""Adapters to external systems: models, the telemetry store, the control database, files."""
