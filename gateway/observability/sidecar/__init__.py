"""The sidecar of a third-party `vllm serve`: receives its workers' measurements, and ships step records."""
