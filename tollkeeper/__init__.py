"""The command line and the supervisor: wiring only."""
