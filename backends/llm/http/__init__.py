"""Model servers that speak OpenAI's API over HTTP."""
