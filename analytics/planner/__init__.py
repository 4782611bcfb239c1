"""What would be if: replicas simulated around the router's policies, the scheduler's rules and fitted step models."""
