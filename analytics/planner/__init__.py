"""What-if simulation: replicas simulated with the router's policies, the scheduler's rules and fitted step models."""
