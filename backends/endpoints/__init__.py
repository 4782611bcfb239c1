"""Discover endpoints of a target: from a file, DNS, or Kubernetes."""
