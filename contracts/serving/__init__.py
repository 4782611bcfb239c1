"""What a gateway serves by: pools, models, routes, rollouts, and policies on failures."""
