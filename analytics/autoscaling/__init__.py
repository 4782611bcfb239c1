"""What an autoscaler goes by: queues, caches and the time to first token that is predicted, by model."""
