"""Secret files, references to credentials, and password hashes."""
