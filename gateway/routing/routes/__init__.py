"""Where a route leads a request: which of its entries may be used, in which order, and the way along them."""
