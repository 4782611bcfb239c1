"""The analytics process's HTTP: the answers of the command line, for machines, scoped by who asks."""
