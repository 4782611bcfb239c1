"""Configuration as code: all objects as one document, compared with the existing ones and applied as a whole."""
