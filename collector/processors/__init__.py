"""Processing of telemetry between receiving and writing."""
