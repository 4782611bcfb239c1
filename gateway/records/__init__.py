"""Records of requests: built, written to the journal, sent to the collector, traced and audited."""
