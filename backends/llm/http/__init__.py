"""Targets over HTTP that speak OpenAI's API or a native one (Anthropic's, Google's)."""
