"""Configuration as code: objects of every kind as one document, compared with what is there and applied as a whole."""
