"""What-if simulation of replicas, with the router's policies, the scheduler's rules and fitted step models."""
