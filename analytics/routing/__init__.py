"""Statistics of routing: answers by model and target, additional attempts, and quality of the router's choices."""
