"""Token usage: disjoint leaves, and the formats in which providers report them."""
