"""What happens to telemetry between receiving and writing."""
