"""Parse Prometheus metrics of third-party inference servers into common terms."""
