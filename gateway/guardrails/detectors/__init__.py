"""What guardrails look for, each a file."""
