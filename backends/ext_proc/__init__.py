"""Envoy's external processing protocol (`ext_proc`): its messages, and a gRPC server."""
