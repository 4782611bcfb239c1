"""Configuration: the YAML file, the control database, and the snapshot requests are served by."""
