"""The endpoint picker: this gateway's choice of replicas for somebody else's Envoy."""
