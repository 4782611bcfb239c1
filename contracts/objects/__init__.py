"""What the object store keeps for callers: files, batches and stored responses."""
