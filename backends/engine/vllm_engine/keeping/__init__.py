"""Prompts that callers asked to be kept, in vLLM's own cache: what runs in the process that schedules."""
