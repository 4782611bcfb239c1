"""What the soak is made of: mixed traffic, a model server that fails now and then, and what is watched meanwhile."""
