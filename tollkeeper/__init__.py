"""The command line, and the supervisor that runs all processes on one machine."""
