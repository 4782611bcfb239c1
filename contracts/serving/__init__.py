"""Configuration of the serving path: pools, models, routes, rollouts, failure policies."""
