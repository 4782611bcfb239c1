"""Configuration that a gateway serves by: pools, models, routes, rollouts, failure policies."""
