"""Secrets in files, references to credentials, passwords."""
