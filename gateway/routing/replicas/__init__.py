"""Choice of a pool's replica: the router and what it learns from engine hosts."""
