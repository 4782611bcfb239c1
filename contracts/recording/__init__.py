"""Records, their columns and names, and the telemetry of others."""
