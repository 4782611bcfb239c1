"""Health of targets: circuit breakers, latencies, and what gateways share of them."""
