"""Who a request belongs to, and keys."""
