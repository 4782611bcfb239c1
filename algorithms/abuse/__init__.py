"""Detect abuse of API keys from requests as they arrive, in bounded memory."""
