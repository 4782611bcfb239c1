"""Objects of the control plane on the command line: declared in one table, with the same verbs and options."""
