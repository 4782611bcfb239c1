"""Objects that applications store at the gateway: files, batches, responses."""
