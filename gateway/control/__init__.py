"""The control plane's HTTP API, on its own port."""
