"""What went wrong in a stretch of time, and why: evidence from the store, probable causes in words."""
