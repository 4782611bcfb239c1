"""The APIs that applications use: how bodies are read, which path does what, and how answers are written."""
