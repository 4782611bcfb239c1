"""The life of one request: its state, the stages it passes through, its charges and its end."""
