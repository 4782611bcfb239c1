"""The response cache: answers are reused for the same tenant, for an equal request or one with the same meaning."""
