"""Choose a replica of a pool: the router and what it learns from hosts. Policies are in `algorithms/routing/`."""
