"""Usage, cost and charges of a request that has ended."""
