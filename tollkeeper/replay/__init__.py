"""Replays recorded workloads through the gateway, with their original arrival times and lengths."""
