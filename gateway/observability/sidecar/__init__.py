"""The sidecar of somebody else's `vllm serve`: takes what its workers measure, and ships step records."""
