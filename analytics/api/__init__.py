"""The HTTP API of the analytics process: the command line's reports as JSON, restricted to the caller's access."""
