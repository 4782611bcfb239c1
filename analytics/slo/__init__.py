"""Whether promises are kept: counts by indicator, error budgets, burn rates."""
