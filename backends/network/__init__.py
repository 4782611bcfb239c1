"""Connection limits, network addresses and TLS of listeners."""
