"""Objects of the control plane on the command line: declared once each, with the same verbs and flags."""
