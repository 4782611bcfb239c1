"""`tollkeeper gate`: sends the same prompts to two models, and fails if the candidate is worse than the incumbent."""
