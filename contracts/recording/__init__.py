"""Records, their columns and names, and telemetry from other systems."""
