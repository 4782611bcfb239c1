"""Which replica of a pool answers: the router, and what it learns from hosts. Choosing is in `algorithms/routing/`."""
