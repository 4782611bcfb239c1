"""Where the endpoints of a target are found: a file, DNS, or Kubernetes."""
