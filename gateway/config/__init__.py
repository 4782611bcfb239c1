"""Configuration: the YAML file, the control database, and the snapshot that requests use."""
