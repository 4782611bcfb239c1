"""What reaches outside: models, the telemetry store, the control-plane database, files."""
