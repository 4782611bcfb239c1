"""Configuration as code: YAML files read, sent to the control plane as a whole, and its plan printed."""
