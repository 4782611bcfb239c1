"""Health of targets: circuit breakers, latencies, and what gateways share about them."""
