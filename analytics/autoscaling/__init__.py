"""Signals for autoscalers by model: queues, KV caches and predicted time to first token."""
