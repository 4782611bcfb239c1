"""The endpoint picker: this gateway's choice of replicas, for an Envoy proxy that is not part of Tollkeeper."""
