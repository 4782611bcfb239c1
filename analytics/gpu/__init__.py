"""GPU time and its cost: a complete ledger, allocation of idle time to tenants, and cost per token."""
