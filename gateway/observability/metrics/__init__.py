"""What the data plane tells Prometheus: numbers it keeps anyway, rendered when they are asked for."""
