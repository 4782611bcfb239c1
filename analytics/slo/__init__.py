"""Service level objectives: counts by indicator, error budgets, burn rates."""
