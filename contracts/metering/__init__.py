"""Token usage: disjoint leaves, and the forms in which providers report them."""
