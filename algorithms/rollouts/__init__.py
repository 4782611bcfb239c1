"""Statistics of a rollout's arms, and the decision whether the candidate is worse."""
