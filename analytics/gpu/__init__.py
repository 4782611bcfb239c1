"""GPU time and its cost: a complete ledger, payers of idle time, and cost per token."""
