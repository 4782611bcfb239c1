"""Adapters to the outside: models, the telemetry store, the control database, files."""
