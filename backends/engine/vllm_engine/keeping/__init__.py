"""Pinning of prompt prefixes in vLLM's own prefix cache, at the request of callers: what runs in the scheduler's
process.
"""
