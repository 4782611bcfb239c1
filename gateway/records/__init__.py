"""Records of requests: built, journalled, shipped to the collector, traced, audited."""
